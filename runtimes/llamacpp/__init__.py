"""Stock llama.cpp as a backend.

backend     open a bundle's GGUF files, and the seam that the loop calls
decoders    base and micro decoder, each with a cache of its own; taps read from the base's layers
context     one llama.cpp context: rows in, states and logits out, KV cache
saved_state a saved KV cache checked before llama.cpp sees it
graft       embedder and stop head, in numpy
gguf_file   GGUF files checked before llama.cpp sees them, and read by row
library     the functions of llama.cpp that are used, by version
"""
