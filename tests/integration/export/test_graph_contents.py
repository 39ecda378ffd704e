"""Graphs are what was declared, hold weights once, use the operators of their flavour; damage is named."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from helpers.places import ROOT
from helpers.toys.exports import export
from helpers.toys.manifests import read_manifest, write_manifest
from helpers.toys.quantizing import q4_1, weights
from helpers.toys.toy_bundles import (
    CHANGES,
    MERGING,
    MERGING_GEMMA,
    ONE_LAYER,
    PORTABLE,
    toy_checkpoint,
)

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.export.graphs import weight_file
from hamburger_edge.export.graphs.tracing import quiet
from hamburger_edge.export.precision_plan import Former, make_plan
from hamburger_edge.export.quantization.own_grid import GridForm
from hamburger_edge.export.quantization.weight_forms import FormedLinear
from hamburger_edge.runtimes.onnx.onnx_backend import open_bundle

# a vocabulary and a width at which heads are worth a place in weights.bin
WIDE = {"draft_vocab_size": 300, "vocab_size": 4096, "hidden_size": 64, "num_layers": 2, "micro_layers": 1}


def graphs(bundle: Path) -> dict[str, onnx.ModelProto]:
    return {path.stem: onnx.load(path, load_external_data=False) for path in bundle.glob("*.onnx")}


def stored(tensor: onnx.TensorProto) -> tuple[int, int]:
    """Offset and length in weights.bin."""
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
    without_gaps = load_manifest(bundles(**MERGING)).graph("base")
    assert "positions" not in [tensor.name for tensor in without_gaps.inputs]


def test_heads_have_a_sink_of_no_weight_where_the_cache_has_8_bits(bundles: Callable[..., Path]) -> None:
    """With it ONNX Runtime reads such a cache without unpacking blocks of it first."""

    def sinks(graph: onnx.GraphProto) -> list[list[float] | None]:
        values = {tensor.name: tensor for tensor in graph.initializer}
        nodes = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
        operands = [[*node.input, *[""] * 12][11] for node in nodes]
        return [onnx.numpy_helper.to_array(values[name]).tolist() if name else None for name in operands]

    for changes in (CHANGES, MERGING_GEMMA):  # the latter has layers with a window
        int8 = graphs(bundles(**changes, precision="int8"))
        per_head, *others = sinks(int8["base"].graph)
        assert per_head is not None
        assert set(map(math.exp, per_head)) == {0}
        assert others == [per_head] * len(others)
        assert set(sinks(int8["micro_decoder"].graph)) == {None}  # its cache has 32 bits
    assert set(sinks(graphs(bundles(**CHANGES))["base"].graph)) == {None}


def test_weights_of_two_graphs_are_stored_once(bundles: Callable[..., Path]) -> None:
    found = graphs(bundles(**WIDE))

    def places(graph: str, part: str) -> set[tuple[int, int]]:
        tensors = [tensor for tensor in found[graph].graph.initializer if tensor.external_data]
        return {stored(tensor) for tensor in tensors if part in tensor.name and "weight" in tensor.name}

    [head] = places("base", "vocabulary")
    assert places("embedder", "vocabulary") == {head}
    # the draft vocabulary head is the head's beginning
    assert places("micro_decoder", "vocabulary") == {head, (head[0], head[1] * 300 // 4096)}
    assert places("base", "stop_head") == places("micro_decoder", "stop_head") != set()


def test_int8_draft_vocab_head_is_a_tile_of_the_head(bundles: Callable[..., Path]) -> None:
    """And the embeddings of both other graphs are all of its tiles."""
    found = graphs(bundles(precision="int8", **WIDE))
    int8 = {
        name: {stored(v) for v in model.graph.initializer if v.external_data and v.data_type == v.INT8}
        for name, model in found.items()
    }
    assert 300 * 64 in {length for _, length in int8["base"] & int8["micro_decoder"]}
    [table] = [span for span in int8["embedder"] & int8["micro_decoder"] if span[1] == 4096 * 64]
    start, length = table
    assert sum(size for offset, size in int8["base"] if start <= offset < start + length) == length
    operators = {node.op_type for model in found.values() for node in model.graph.node}
    assert operators & {"DynamicQuantizeMatMul", "MatMulNBits"} == {"DynamicQuantizeMatMul"}


def test_bundle_contains_no_path_of_this_machine(bundles: Callable[..., Path]) -> None:
    here = [str(ROOT).encode(), str(Path.home()).encode() + b"/", b"site-packages"]
    for path in bundles(**CHANGES).iterdir():
        content = path.read_bytes()
        assert not any(word in content for word in here), path.name


@pytest.mark.parametrize(
    "changes",
    [CHANGES, {**CHANGES, "precision": "int8"}, {**CHANGES, "precision": "int4"}, PORTABLE],
    ids=["fp32", "int8", "int4", "portable"],
)
def test_onnx_runtime_opens_the_graphs_without_a_warning(
    changes: dict[str, object], bundles: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime warns of every unused constant whenever a graph is opened."""
    for graph in bundles(**changes).glob("*.onnx"):
        ort.InferenceSession(graph)
    assert "Removing initializer" not in capfd.readouterr().err


def test_portable_flavor_works_at_4_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard operators alone; two weights a byte, in the weight file too, which the parity gate reads."""
    monkeypatch.setattr(weight_file, "INLINE", 64)
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", **{**CHANGES, **ONE_LAYER})
    bundle = export(checkpoint, tmp_path / "bundle", flavor="portable", precision="int4")
    for model in graphs(bundle).values():
        assert {each.domain for each in (*model.opset_import, *model.graph.node)} <= {"", "ai.onnx"}
        assert 17 <= model.opset_import[0].version <= 21
    manifest = load_manifest(bundle)
    past = next(tensor for tensor in manifest.graph("base").inputs if tensor.name == "past_key.0")
    assert past.dims == (1, 2, manifest.cache_slots, 16)
    with pytest.raises(InputError, match="--cache-slots 77"):
        open_bundle(bundle, cache_slots=77)
    tensors = graphs(bundle)["base"].graph.initializer
    four_bits = [w for w in tensors if w.data_type == onnx.TensorProto.UINT4 and w.external_data]
    assert len(four_bits) > 5
    assert all(stored(weight)[1] == math.prod(weight.dims) // 2 for weight in four_bits)


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
def test_attention_operator_rotates_except_for_cuda(kv: str, bundles: Callable[..., Path]) -> None:
    """CUDA's operator, whose cache has 16 bits, takes the cache's length for a position: no gaps."""
    nodes = graphs(bundles(precision="int8", kv_cache_dtype=kv, **CHANGES))["base"].graph.node
    layers = CHANGES["num_layers"]
    attention = [node for node in nodes if node.op_type == "GroupQueryAttention"]
    inside = kv == "fp32"
    assert [any(a.name == "do_rotary" for a in node.attribute) for node in attention] == [inside] * layers
    assert {"positions" in node.input for node in attention} == {inside}
    kinds = [node.op_type for node in nodes]
    assert kinds.count("RotaryEmbedding") == (0 if inside else 2 * layers)
    assert kinds.count("Split") == (layers if inside else 2 * layers)  # gate and up; and attention's


@pytest.mark.parametrize("K", [96, 576])
def test_a_layer_on_its_own_grid_computes_what_it_stands_for(K: int, tmp_path: Path) -> None:
    """Through ONNX Runtime, with rows whose blocks have different means, because the form adds these."""
    plan = dataclasses.replace(make_plan("int4"), grid=32)
    form = Former(plan, packed=True).linear("base.layers.0.mlp.up_proj", q4_1(64, K))
    assert isinstance(form, GridForm)
    inputs = weights(5, K, seed=2)[None] + weights(5, K // 32, seed=3).repeat_interleave(32, 1)[None]
    with quiet():
        torch.onnx.export(
            FormedLinear(form, None), (inputs,), tmp_path / "layer.onnx", opset_version=23, verbose=False
        )
    session = ort.InferenceSession(tmp_path / "layer.onnx")
    [out] = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    wanted = (inputs @ q4_1(64, K).T).numpy()
    assert np.square(out - wanted).mean() < 0.02**2 * np.square(wanted).mean()  # inputs are rounded to 8 bits


def test_int4_fast_has_the_plan_for_speed(tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "toy", hidden_size=64, **ONE_LAYER)
    bundle = export(checkpoint, tmp_path / "fast", precision="int4-fast")
    assert load_manifest(bundle).precision == make_plan("int4-fast")


def test_graphs_that_differ_from_the_manifest_are_refused(
    bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """Each is one line that names the place, whatever ONNX Runtime makes of it."""
    bundle = Path(shutil.copytree(bundles(**CHANGES), tmp_path / "copy"))
    whole = read_manifest(bundle)
    more, wider = copy.deepcopy(whole), copy.deepcopy(whole)
    inputs = more["graphs"][1]["inputs"]
    inputs.append({**inputs[0], "name": "more"})
    wider["graphs"][1]["inputs"][0]["shape"][2] = "12345"
    for data, message in ((more, "inputs differ from the manifest's in more"), (wider, "12345")):
        write_manifest(bundle, data)
        with pytest.raises(BundleError, match=rf"base\.onnx: .*{message}"):
            open_bundle(bundle)
    write_manifest(bundle, whole)
    os.truncate(bundle / "weights.bin", 100)
    with pytest.raises(BundleError, match="truncated or changed"):
        open_bundle(bundle)
    write_manifest(bundle, {**whole, "files": [vars(entry) for entry in file_entries(bundle)]})
    with pytest.raises(BundleError, match=r"\.onnx: .*: export it again") as caught:
        open_bundle(bundle)
    assert "\n" not in str(caught.value)
