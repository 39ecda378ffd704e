"""Helpers that do not depend on models: strict reading, files, locks, numbers, terminal, constraints."""
