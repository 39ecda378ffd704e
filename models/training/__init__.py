"""From a recipe and data to a trained graft."""
