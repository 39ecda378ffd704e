"""Count the weight bytes that one step reads from an ONNX or a GGUF file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hamburger_edge.errors import require

_SAME_BYTES = ("Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten")


def onnx_weight_bytes(path: Path) -> int:
    """Return the weight bytes that one forward pass reads, without tables used only by `Gather` nodes."""
    onnx = require("onnx", "bench")
    tensors: dict[str, Any] = {}
    views: dict[str, str] = {}  # reshaped weight -> original weight
    read: set[str] = set()

    def visit(graph: Any) -> None:
        tensors.update((tensor.name, tensor) for tensor in graph.initializer)
        for node in graph.node:
            if node.op_type in _SAME_BYTES:
                views[node.output[0]] = views.get(node.input[0], node.input[0])
            elif not node.op_type.startswith("Gather"):
                read.update(views.get(name, name) for name in node.input)
            for attribute in node.attribute:
                if attribute.HasField("g"):  # subgraph of a branch
                    visit(attribute.g)

    visit(onnx.load(path, load_external_data=False).graph)
    return sum(_tensor_bytes(onnx, tensors[name]) for name in read & tensors.keys())


def _tensor_bytes(onnx: Any, tensor: Any) -> int:
    for entry in tensor.external_data:
        if entry.key == "length":
            return int(entry.value)
    if tensor.raw_data:
        return len(tensor.raw_data)
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return int(math.prod(tensor.dims) * kind.itemsize)


def gguf_weight_bytes(path: Path) -> int:
    """Return the weight bytes without the token embeddings, unless these are also the output projection."""
    tensors = require("gguf", "bench").GGUFReader(path).tensors
    has_head = any(tensor.name == "output.weight" for tensor in tensors)
    return sum(int(t.n_bytes) for t in tensors if not (has_head and t.name == "token_embd.weight"))
