"""Training data that the base writes itself."""
