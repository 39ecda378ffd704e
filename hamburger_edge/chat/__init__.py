"""Text around the loop: tokenizer, templates, streams, conversations, sessions."""
