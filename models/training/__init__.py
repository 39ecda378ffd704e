"""Training a graft by a recipe."""
