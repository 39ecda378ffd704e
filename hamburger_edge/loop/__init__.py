"""The hierarchical loop: groups of tokens in and out, one KV slot per group; no text, no files."""
