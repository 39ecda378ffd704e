"""Helpers that know nothing of models: strict reading, files, locks, numbers, terminal."""
