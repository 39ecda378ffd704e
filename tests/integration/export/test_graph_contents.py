"""Graphs are what was declared, hold every weight once, and use the operators of their flavour."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from places import ROOT
from toy_bundles import CHANGES, MERGING, ONE_LAYER, PORTABLE, toy_checkpoint

from hamburger_edge import export_checkpoint as export
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import InputError
from hamburger_edge.export.graphs import weight_file
from hamburger_edge.runtimes.onnx.onnx_backend import open_bundle

WIDE = {"draft_vocab_size": 300, "vocab_size": 4096, "hidden_size": 64, "num_layers": 2, "micro_layers": 1}
STANDARD = {"", "ai.onnx"}


def graphs(bundle: Path) -> dict[str, onnx.ModelProto]:
    return {path.stem: onnx.load(path, load_external_data=False) for path in bundle.glob("*.onnx")}


def initializers(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Of the graph and of its branches."""
    found: dict[str, onnx.TensorProto] = {}

    def walk(graph: onnx.GraphProto) -> None:
        found.update({tensor.name: tensor for tensor in graph.initializer})
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    walk(attribute.g)

    walk(model.graph)
    return found


def place(tensor: onnx.TensorProto) -> tuple[int, int]:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    assert facts["location"] == "weights.bin"
    return int(facts["offset"]), int(facts["length"])


def test_graphs_have_the_declared_inputs_and_outputs(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**CHANGES)
    manifest = load_manifest(bundle)
    for name, model in graphs(bundle).items():
        onnx.checker.check_model(bundle / f"{name}.onnx")
        spec = manifest.graph(name)
        for declared, found in ((spec.inputs, model.graph.input), (spec.outputs, model.graph.output)):
            shapes = [
                tuple(dim.dim_param or str(dim.dim_value) for dim in value.type.tensor_type.shape.dim)
                for value in found
            ]
            assert [tensor.name for tensor in declared] == [value.name for value in found]
            assert [tensor.shape for tensor in declared] == shapes
    assert "positions" in [tensor.name for tensor in manifest.graph("base").inputs]


def test_positions_are_an_input_only_where_they_have_gaps(bundles: Callable[..., Path]) -> None:
    manifest = load_manifest(bundles(**MERGING))
    assert "positions" not in [tensor.name for tensor in manifest.graph("base").inputs]


def test_what_two_graphs_need_is_stored_once(bundles: Callable[..., Path]) -> None:
    """A vocabulary and a width at which heads are worth a place in weights.bin."""
    bundle = bundles(**WIDE)
    weights = {
        name: {tensor: value for tensor, value in initializers(model).items() if value.external_data}
        for name, model in graphs(bundle).items()
    }
    head = place(next(v for n, v in weights["base"].items() if n.startswith("vocabulary") and "weight" in n))
    lookups = [v for n, v in weights["micro_decoder"].items() if n.startswith("vocabulary") and "weight" in n]
    assert {place(tensor)[0] for tensor in lookups} == {head[0]}
    # the draft vocabulary head is the head's beginning
    assert min(place(tensor)[1] for tensor in lookups) == head[1] * 300 // 4096
    table = next(v for n, v in weights["embedder"].items() if n.startswith("vocabulary") and "weight" in n)
    assert place(table) == head
    stops = [{place(v) for n, v in weights[g].items() if "stop_head" in n} for g in ("base", "micro_decoder")]
    assert stops[0] == stops[1] != set()


def test_the_int8_draft_vocab_head_is_a_tile_of_the_head(bundles: Callable[..., Path]) -> None:
    """And the embeddings, which are looked up by rows, are stored once for both graphs that do."""
    bundle = bundles(precision="int8", **WIDE)
    int8 = {
        name: {place(v) for v in initializers(model).values() if v.external_data and v.data_type == 3}
        for name, model in graphs(bundle).items()
    }
    sizes = {length for _, length in int8["base"] & int8["micro_decoder"]}
    assert 300 * 64 in sizes
    assert 4096 * 64 in {length for _, length in int8["embedder"] & int8["micro_decoder"]}
    assert {node.op_type for model in graphs(bundle).values() for node in model.graph.node} & {
        "DynamicQuantizeMatMul",
        "MatMulNBits",
        "GatherBlockQuantized",
    } == {"DynamicQuantizeMatMul"}


def test_nothing_of_this_machine_is_in_a_bundle(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**CHANGES)
    here = [str(ROOT).encode(), str(Path.home()).encode() + b"/", b"site-packages"]
    for path in bundle.iterdir():
        content = path.read_bytes()
        assert not any(word in content for word in here), path.name


@pytest.mark.parametrize(
    "changes",
    [CHANGES, {**CHANGES, "precision": "int8"}, {**CHANGES, "precision": "int4"}, PORTABLE],
    ids=["fp32", "int8", "int4", "portable"],
)
def test_onnx_runtime_has_nothing_to_complain_about(
    changes: dict[str, object], bundles: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """It warns of every constant that nothing uses, whoever opens the graph."""
    for graph in bundles(**changes).glob("*.onnx"):
        ort.InferenceSession(graph)
    assert "Removing initializer" not in capfd.readouterr().err


def test_the_portable_flavour_at_4_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard operators alone; two weights a byte, in the weight file too, which the parity gate reads."""
    monkeypatch.setattr(weight_file, "INLINE", 64)
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", **{**CHANGES, **ONE_LAYER})
    bundle = export(checkpoint, tmp_path / "bundle", flavor="portable", precision="int4")
    for model in graphs(bundle).values():
        assert {entry.domain for entry in model.opset_import} <= STANDARD
        assert {node.domain for node in model.graph.node} <= STANDARD
        assert 17 <= model.opset_import[0].version <= 21
    manifest = load_manifest(bundle)
    past = next(tensor for tensor in manifest.graph("base").inputs if tensor.name == "past_key.0")
    assert past.dims == (1, 2, manifest.cache_slots, 16)
    with pytest.raises(InputError, match="--cache-slots 77"):
        open_bundle(bundle, cache_slots=77)
    weights = graphs(bundle)["base"].graph.initializer
    four_bits = [w for w in weights if w.data_type == onnx.TensorProto.UINT4 and w.external_data]
    assert len(four_bits) > 5
    for weight in four_bits:
        stored = {entry.key: entry.value for entry in weight.external_data}
        assert int(stored["length"]) == math.prod(weight.dims) // 2


def test_fused_graphs_norm_a_sum_in_one_operator(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**CHANGES)
    model = load_manifest(bundle).model
    for name, layers in ("base", model.num_layers), ("micro_decoder", model.micro_layers):
        nodes = list(graphs(bundle)[name].graph.node)
        sums = {output for node in nodes if node.op_type == "Add" for output in node.output}
        norms = [node for node in nodes if node.op_type == "RMSNormalization"]
        assert not any(norm.input[0] in sums for norm in norms)
        both = [node for node in nodes if node.op_type == "SkipSimplifiedLayerNormalization"]
        assert len(both) >= 2 * layers - 2  # the first norm has no sum before it


@pytest.mark.parametrize("kv", ["fp32", "fp16"])
def test_attention_rotates_by_itself_unless_cuda_is_to_run_it(kv: str, bundles: Callable[..., Path]) -> None:
    """CUDA's operator, whose cache has 16 bits, takes the cache's length for a position: no gaps."""
    model = graphs(bundles(precision="int8", kv_cache_dtype=kv, **CHANGES))["base"]
    layers = CHANGES["num_layers"]
    attention = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    inside = kv == "fp32"
    assert [any(a.name == "do_rotary" for a in node.attribute) for node in attention] == [inside] * layers
    assert {"positions" in node.input for node in attention} == {inside}
    assert {bool(node.input[1]) for node in attention} == {not inside}  # inside, it cuts their product apart
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("RotaryEmbedding") == (0 if inside else 2 * layers)
    assert kinds.count("Split") == (layers if inside else 2 * layers)  # gate and up; and attention's
