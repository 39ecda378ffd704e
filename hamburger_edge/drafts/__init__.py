"""Drafts without a model call: usual continuations of a task's answers, and words copied from the prompt."""
