"""Stock llama.cpp as a backend.

backend     opens a bundle's GGUF files; the interface that the loop calls
decoders    base and micro decoder, each with its cache; taps read from the base's layers
context     one llama.cpp context: rows in, states and logits out, KV cache
saved_state a saved KV cache checked before llama.cpp sees it
graft       embedder and stop head, in numpy
gguf_file   GGUF files checked before llama.cpp sees them, and read by row
library     the used functions of llama.cpp, by version
"""
