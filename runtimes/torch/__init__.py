"""PyTorch as a backend: float32, on training's modules. Other runtimes must generate the same tokens."""
