"""Answers of a required structure: constraints on their next tokens, such as grammars, edits, copies."""
