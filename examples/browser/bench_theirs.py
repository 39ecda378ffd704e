"""Export a checkpoint's base for transformers.js with onnxruntime-genai's builder, in 4 and 8 bits."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from hamburger_edge.benchmarks.contender import Source
from hamburger_edge.benchmarks.peers import weights
from hamburger_edge.benchmarks.peers.genai import Genai

FILES = {"q4": "model_q4.onnx", "q8": "model_quantized.onnx"}  # transformers.js's dtype -> file


def write_base(source: Source, folder: Path) -> None:
    """Write graphs, configuration and tokenizer under the file names that transformers.js expects."""
    int4 = Genai(dataclasses.replace(source, precision="int4")).prepare()
    (folder / "onnx").mkdir(parents=True)
    for made, name in ((int4 / "model.onnx", FILES["q4"]), (_int8(source), FILES["q8"])):
        _with_empty_cache(made, weights.hugging_face(source), folder / "onnx" / name)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((weights.hugging_face(source) / name).read_bytes())


def _int8(source: Source) -> Path:
    """Quantize the graph as transformers.js's conversion does: `MatMulInteger` with unsigned weights."""

    def make(folder: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        float32 = Genai(dataclasses.replace(source, precision="fp32")).prepare()
        options = {"EnableSubgraph": True, "MatMulConstBOnly": True}
        quantize_dynamic(
            float32 / "model.onnx",
            folder / "model.onnx",
            weight_type=QuantType.QUInt8,
            extra_options=options,
        )

    return weights.built(source, "dynamic-int8", make) / "model.onnx"


def _with_empty_cache(made: Path, hf: Path, path: Path) -> None:
    """Write the graph with a fixed head size: transformers.js creates the empty cache from its shapes."""
    import onnx

    model = onnx.load(made)
    size = json.loads((hf / "config.json").read_text(encoding="utf-8"))["head_dim"]
    for given in model.graph.input:
        for dim in given.type.tensor_type.shape.dim:
            if dim.dim_param == "kv_cache_dim":
                dim.dim_value = size
    onnx.save(model, path)
