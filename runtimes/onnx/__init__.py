"""ONNX Runtime as a backend.

backend     open a bundle, and the seam that the loop calls
sessions    a graph opened for a provider, and checked against the manifest
parts       the three graphs: embedder, base, micro decoder; what is bound once and what a call writes
cache       how a kind of graph fills the KV cache: in place, or placed by the host
kv_buffer   the memory of the KV cache: where a slot is allocated, forgotten, saved
buffers     host memory bound to a graph
"""
