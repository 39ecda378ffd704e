"""`eval`: what merging and quantization cost in quality."""
