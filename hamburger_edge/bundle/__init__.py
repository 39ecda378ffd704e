"""Bundles as files: the manifest, reading and distrusting it, inspection."""
