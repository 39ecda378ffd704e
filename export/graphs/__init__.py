"""From modules to ONNX graphs and the file of their weights."""
