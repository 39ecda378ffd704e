"""What files of bases hold: GGUF's header, blocks and tokenizer, SentencePiece's pieces, names of weights."""
