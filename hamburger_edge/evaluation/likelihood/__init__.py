"""How likely a base finds a model's answers, against its own."""
