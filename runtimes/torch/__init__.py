"""PyTorch as a backend: float32, on the modules that training uses. Other runtimes must say what it says."""
