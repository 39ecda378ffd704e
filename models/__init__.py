"""HAMburger in PyTorch: the definition that training, export and the reference runtime share."""
