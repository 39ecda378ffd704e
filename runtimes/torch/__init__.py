"""PyTorch as a backend: the arbiter."""
