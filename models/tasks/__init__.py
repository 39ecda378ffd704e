"""Task models: what an app tunes a base to."""
