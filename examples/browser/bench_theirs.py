"""Export a checkpoint's base for transformers.js at q8, from onnxruntime-genai's float32 graph."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.contender import Source
from hamburger_edge.benchmarks.peers import peer_files
from hamburger_edge.benchmarks.peers.genai import Genai

FILE = "model_quantized.onnx"  # transformers.js's name of dtype "q8"


def write_base(source: Source, folder: Path) -> None:
    """Write graph, configuration and tokenizer under the file names that transformers.js expects."""
    hf = peer_files.hugging_face(source)
    made = peer_files.built(source, "transformers-js-q8", lambda into: _write_graph(source, hf, into))
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / FILE).write_bytes((made / FILE).read_bytes())
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((hf / name).read_bytes())


def _write_graph(source: Source, hf: Path, folder: Path) -> None:
    """Quantize as transformers.js's own conversion does: unsigned weights, the embeddings too."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    float32 = Genai(dataclasses.replace(source, precision="fp32")).prepare()
    model = onnx.load(float32 / "model.onnx")
    _untie(model)
    _fix_head_size(model, json.loads((hf / "config.json").read_text(encoding="utf-8"))["head_dim"])
    options = {"EnableSubgraph": True, "MatMulConstBOnly": True}
    quantize_dynamic(model, folder / FILE, weight_type=QuantType.QUInt8, extra_options=options)


def _untie(model: Any) -> None:
    """Give the embeddings a tensor: the builder reads them through a transposed head, in float32."""
    from onnx import numpy_helper

    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in tensors]:
        own = numpy_helper.to_array(tensors[node.input[0]]).T.copy()
        graph.initializer.append(numpy_helper.from_array(own, node.output[0]))
        graph.node.remove(node)


def _fix_head_size(model: Any, size: int) -> None:
    """transformers.js creates the empty cache from the graph's shapes."""
    for given in model.graph.input:
        for dim in given.type.tensor_type.shape.dim:
            if dim.dim_param == "kv_cache_dim":
                dim.dim_value = size
