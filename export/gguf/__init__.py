"""From a checkpoint to GGUF files."""
