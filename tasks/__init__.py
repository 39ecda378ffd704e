"""Programs that write training data."""
