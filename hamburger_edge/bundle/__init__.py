"""Bundles as files: the manifest, its strict reader, and inspection."""
