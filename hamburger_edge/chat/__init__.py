"""The text layer over the decoding loop: tokenizer, templates, streams, conversations, sessions."""
