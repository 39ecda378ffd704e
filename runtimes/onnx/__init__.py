"""ONNX Runtime as a backend.

backend     opens a bundle; the interface that the loop calls
sessions    opens a graph for a provider and checks it against the manifest
onnx_parts  the graphs with their bound inputs and outputs: embedder, base, micro decoder
cache       filling the KV cache: in place, or by the host
kv_buffer   the memory of the KV cache: allocating, forgetting and saving slots
buffers     host memory bound to a graph

ONNX Runtime 1.32 for Linux stores a number of the device and sends events of its use to its maker. Here it
does not, unless the variable below was set before.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it when it is imported
