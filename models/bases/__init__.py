"""Other people's base models: fetched, read, renamed."""
