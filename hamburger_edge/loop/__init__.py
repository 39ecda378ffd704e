"""The hierarchical loop: groups in, groups out, one KV slot each; no text, no files."""
