"""HAMburger checkpoints on disk."""
