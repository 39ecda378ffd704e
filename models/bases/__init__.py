"""Base models of other projects: fetching, reading, renaming weights."""
