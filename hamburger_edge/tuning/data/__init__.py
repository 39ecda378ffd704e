"""The examples of a task: read, checked, written as tokens, and copied with other names."""
