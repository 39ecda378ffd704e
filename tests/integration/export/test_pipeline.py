"""A checkpoint becomes a bundle or nothing; weights are stored once; graphs are what was declared."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from places import PROGRAMS, ROOT, environment
from toy_bundles import toy_checkpoint

from hamburger_edge import export_checkpoint as export
from hamburger_edge.bundle.inspection import describe
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, ConfigError, HamburgerError, InputError
from hamburger_edge.export.graphs import weight_file
from hamburger_edge.runtimes.onnx.backend import OnnxBackend, open_bundle
from hamburger_edge.runtimes.torch.backend import TorchBackend

CHANGES = {"shortlist_size": 40, "context_length": 2600, "num_layers": 2}
WEB = {**CHANGES, "flavor": "web", "precision": "int8"}
PORTABLE = {"flavor": "portable", "position_rule": "token", "shortlist_size": 40, "num_layers": 2}
ONE_LAYER = {"num_layers": 1, "micro_layers": 1, "taps": (0,)}
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
    manifest = load_manifest(bundles(position_rule="slot", shortlist_size=100))
    assert "positions" not in [tensor.name for tensor in manifest.graph("base").inputs]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_two_graphs_need_is_stored_once(precision: str, bundles: Callable[..., Path]) -> None:
    """A vocabulary and a width at which heads are worth a place in weights.bin."""
    bundle = bundles(precision=precision, shortlist_size=300, vocab_size=4096, hidden_size=64)
    weights = {
        name: {tensor: value for tensor, value in initializers(model).items() if value.external_data}
        for name, model in graphs(bundle).items()
    }
    kind = "weight" if precision == "fp32" else "packed"
    head = place(next(v for n, v in weights["base"].items() if n.startswith("vocabulary") and kind in n))
    lookups = [v for n, v in weights["micro_decoder"].items() if n.startswith("vocabulary") and kind in n]
    assert {place(tensor)[0] for tensor in lookups} == {head[0]}
    # the shortlist head is the head's beginning
    assert min(place(tensor)[1] for tensor in lookups) == head[1] * 300 // 4096
    table = next(v for n, v in weights["embedder"].items() if n.startswith("vocabulary") and kind in n)
    assert place(table) == head
    stops = [{place(v) for n, v in weights[g].items() if "stop_head" in n} for g in ("base", "micro_decoder")]
    assert stops[0] == stops[1] != set()


def test_nothing_of_this_machine_is_in_a_bundle(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**CHANGES)
    here = [str(ROOT).encode(), str(Path.home()).encode() + b"/", b"site-packages"]
    for path in bundle.iterdir():
        content = path.read_bytes()
        assert not any(word in content for word in here), path.name


@pytest.mark.parametrize(
    "changes",
    [CHANGES, {**CHANGES, "precision": "int8"}, {**CHANGES, "precision": "int4"}, PORTABLE, WEB],
    ids=["fp32", "int8", "int4", "portable", "web"],
)
def test_onnx_runtime_has_nothing_to_complain_about(
    changes: dict[str, object], bundles: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """It warns of every constant that nothing uses, whoever opens the graph."""
    for graph in bundles(**changes).glob("*.onnx"):
        ort.InferenceSession(graph)
    assert "Removing initializer" not in capfd.readouterr().err


def test_the_web_flavour_has_weights_apart_from_their_products(bundles: Callable[..., Path]) -> None:
    """So that they can be unpacked while loading; attention is ONNX Runtime's own."""
    bundle = bundles(**WEB)
    graph = onnx.load(bundle / "base.onnx", load_external_data=False).graph
    operators = {node.op_type for node in graph.node}
    assert {"DequantizeLinear", "GroupQueryAttention"} <= operators
    assert "MatMulNBits" not in operators


def test_the_portable_flavour_uses_standard_operators_alone(bundles: Callable[..., Path]) -> None:
    bundle = bundles(flavor="portable", precision="int4", shortlist_size=40, **ONE_LAYER)
    for model in graphs(bundle).values():
        assert {entry.domain for entry in model.opset_import} <= STANDARD
        assert {node.domain for node in model.graph.node} <= STANDARD
        assert 17 <= model.opset_import[0].version <= 21
    manifest = load_manifest(bundle)
    past = next(tensor for tensor in manifest.graph("base").inputs if tensor.name == "past_key.0")
    assert past.dims == (1, 2, manifest.cache_length, 16)
    with pytest.raises(InputError, match="--cache-length 77"):
        open_bundle(bundle, context=77)


def test_portable_4_bit_weights_are_stored_two_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are large enough to lie in the weight file; the parity gate reads them back."""
    monkeypatch.setattr(weight_file, "INLINE", 64)
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", **{**CHANGES, **ONE_LAYER})
    bundle = export(checkpoint, tmp_path / "bundle", flavor="portable", precision="int4")
    graph = onnx.load(bundle / "base.onnx", load_external_data=False).graph
    four_bits = [w for w in graph.initializer if w.data_type == onnx.TensorProto.UINT4 and w.external_data]
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
def test_attention_rotates_by_itself_unless_cuda_is_to_run_it(kv: str, tmp_path: Path) -> None:
    """CUDA's operator, whose cache has 16 bits, takes the cache's length for a position: no gaps."""
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", **CHANGES)
    model = graphs(export(checkpoint, tmp_path / kv, precision="int8", kv=kv, verify=False))["base"]
    layers = checkpoint.model.config.base.num_layers
    attention = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    inside = kv == "fp32"
    assert [any(a.name == "do_rotary" for a in node.attribute) for node in attention] == [inside] * layers
    assert {"positions" in node.input for node in attention} == {inside}
    assert {bool(node.input[1]) for node in attention} == {not inside}  # inside, it cuts their product apart
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("RotaryEmbedding") == (0 if inside else 2 * layers)
    assert kinds.count("Split") == (layers if inside else 2 * layers)  # gate and up; and attention's


@pytest.mark.parametrize("rule", ["token", "slot"])
def test_portable_equals_pytorch(rule: str, bundles: Callable[..., Path], tmp_path: Path) -> None:
    changes = {"position_rule": rule, "shortlist_size": 40, "num_layers": 2}
    bundle = bundles(flavor="portable", **changes)
    ours = OnnxBackend(bundle, load_manifest(bundle), threads=1)
    reference = TorchBackend(toy_checkpoint(tmp_path, **changes).model)
    groups = [(7,), (8, 9), (10, 11, 12), (13,), (14, 15, 16, 17), (18,)]
    ends = list(np.cumsum([len(group) for group in groups]) - 1)
    positions = ends if rule == "token" else list(range(len(groups)))
    for start, stop in ((0, 3), (3, 4), (4, 5), (5, 6)):
        got, want = (
            backend.macro(groups[start:stop], positions[start:stop], [stop - start - 1])
            for backend in (ours, reference)
        )
        np.testing.assert_allclose(got.logits, want.logits, atol=1e-4)
        np.testing.assert_allclose(got.features, want.features, atol=1e-4)
        ours.micro_begin(got.features[0])
        reference.micro_begin(want.features[0])
        for token in (5, 6, 7):
            np.testing.assert_allclose(ours.micro(token).logits, reference.micro(token).logits, atol=1e-4)
    saved = ours.snapshot()
    ours.truncate(2)
    ours.restore(saved, 6)
    assert ours.slots == 6
    np.testing.assert_array_equal(ours.snapshot()["keys"], saved["keys"])


def test_targets_that_are_taken(bundles: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint")
    taken = tmp_path / "taken"
    shutil.copytree(bundles(**CHANGES), taken)
    with pytest.raises(InputError, match="--force"):
        export(checkpoint, taken)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not a bundle"):
        export(checkpoint, other, force=True)
    assert (other / "letter.txt").read_text() == "dear"
    (other / "manifest.json").write_text('{"name": "of a browser extension", "manifest_version": 3}')
    with pytest.raises(InputError, match="not a bundle"):
        export(checkpoint, other, force=True)
    (taken / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt, which exporting would delete"):
        export(checkpoint, taken, force=True)
    with pytest.raises(InputError, match="cache_length is"):
        export(checkpoint, tmp_path / "new", cache_length=100)
    with pytest.raises(InputError, match="gguf_precision is for GGUF files"):
        export(checkpoint, tmp_path / "new", gguf_precision="q8_0")
    with pytest.raises(InputError, match="precision"):
        export(checkpoint, tmp_path / "new", precision="int1")
    with pytest.raises(InputError, match="flavor"):
        export(checkpoint, tmp_path / "new", flavor="strange")  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "other", "taken"]


def test_only_its_own_leftovers_are_cleared_and_a_link_goes_on_pointing(
    bundles: Callable[..., Path], tmp_path: Path
) -> None:
    mine, another, odd = (tmp_path / f".{name}.0123abcd.partial" for name in ("m", "m.int4", "[m]"))
    for folder in (mine, another, odd):
        folder.mkdir()
    checkpoint = toy_checkpoint(tmp_path / "toy", **ONE_LAYER)
    export(checkpoint, tmp_path / "m", precision="fp32", verify=False)
    assert not mine.exists()
    assert another.exists()
    assert odd.exists()
    first = load_manifest(tmp_path / "m").fingerprint
    (tmp_path / "current").symlink_to("m")
    export(checkpoint, tmp_path / "current", precision="int8", verify=False, force=True)
    assert (tmp_path / "current").is_symlink()
    assert load_manifest(tmp_path / "m").fingerprint != first


def test_a_portable_cache_of_no_use_is_refused(tmp_path: Path) -> None:
    for slots in (-5, 0, 16, 10**9):
        wanted = "cache_length must be a whole number, 64 or more and at most 512"
        with pytest.raises(InputError, match=wanted):
            export(toy_checkpoint(tmp_path / "toy"), tmp_path / "m", flavor="portable", cache_length=slots)
    assert not (tmp_path / "m").exists()


def test_speed_is_preferred_where_it_can_be_had(tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "toy")
    with pytest.raises(InputError, match="'speed' is for fused graphs"):
        export(checkpoint, tmp_path / "m", precision="int4", flavor="portable", prefer="speed")
    with pytest.raises(InputError, match="prefer are for graphs"):
        export(checkpoint, tmp_path / "m", precision="q4_1", formats=["gguf"], prefer="speed")
    assert not (tmp_path / "m").exists()


def test_a_head_size_the_operator_cannot_take_is_refused(tmp_path: Path) -> None:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", head_dim=12, position_rule="slot")
    with pytest.raises(ConfigError, match=r"12.*--flavor portable"):
        export(checkpoint, tmp_path / "bundle", precision="fp32")


def damage(bundle: Path, copy: Path, change: Callable[[Path], None], *, honest: bool = True) -> Path:
    """A copy of a bundle with one thing wrong; `honest` sizes and hashes let it past the file checks."""
    shutil.copytree(bundle, copy)
    change(copy)
    if honest:
        from dataclasses import replace

        from hamburger_edge.bundle.files import file_entries

        manifest = load_manifest(copy)
        replace(manifest, files=tuple(file_entries(copy))).save(copy)
    return copy


def edit(name: str, change: Callable[[onnx.ModelProto], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        model = onnx.load(folder / name, load_external_data=False)
        change(model)
        (folder / name).write_bytes(model.SerializeToString())

    return apply


def point_outside(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../outside.bin"


def point_beyond(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                entry.value = str(1 << 40)


def rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "other"


def widen_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 12345


DAMAGE = {
    "graph is noise": lambda folder: (folder / "base.onnx").write_bytes(os.urandom(5000)),
    "graph is empty": lambda folder: (folder / "micro_decoder.onnx").write_bytes(b""),
    "graph is cut": lambda folder: os.truncate(folder / "base.onnx", 3000),
    "weights are cut": lambda folder: os.truncate(folder / "weights.bin", 100),
    "weights elsewhere": edit("base.onnx", point_outside),
    "weights beyond the end": edit("base.onnx", point_beyond),
    "another input": edit("base.onnx", rename_input),
    "another shape": edit("base.onnx", widen_input),
    "graphs swapped": lambda folder: shutil.copy(folder / "embedder.onnx", folder / "base.onnx"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_graphs_are_typed_errors(kind: str, bundles: Callable[..., Path], tmp_path: Path) -> None:
    bundle = bundles(**CHANGES)
    (tmp_path / "outside.bin").write_bytes((bundle / "weights.bin").read_bytes())
    broken = damage(bundle, tmp_path / "copy", DAMAGE[kind])
    with pytest.raises(HamburgerError) as caught:
        open_bundle(broken)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, BundleError)


def test_a_changed_graph_is_noticed_by_its_size(bundles: Callable[..., Path], tmp_path: Path) -> None:
    broken = damage(bundles(**CHANGES), tmp_path / "copy", edit("base.onnx", rename_input), honest=False)
    with pytest.raises(BundleError, match="truncated or changed"):
        open_bundle(broken)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
def test_killed_exports_leave_nothing_that_loads(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "killed_exports.py"), str(tmp_path), "20"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr[-2000:]
    # the exports that were let finish swept up what the killed ones left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "checkpoint", "new"]


def test_two_exports_to_one_place_do_not_mix(bundles: Callable[..., Path], tmp_path: Path) -> None:
    """Started together: one of them makes the bundle, the other is told that it exists."""
    script = tmp_path / "one.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from toy_bundles import toy_checkpoint\n"
        "from hamburger_edge.errors import InputError\n"
        "from hamburger_edge import export_checkpoint as export\n"
        "checkpoint = toy_checkpoint(Path(sys.argv[1]), num_layers=1, micro_layers=1, taps=(0,))\n"
        "try:\n"
        "    export(checkpoint, sys.argv[2], precision='fp32', verify=False)\n"
        "    print('made')\n"
        "except InputError as error:\n"
        "    print('refused' if '--force' in str(error) else error)\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, script, tmp_path / f"checkpoint{number}", tmp_path / "bundle"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(OMP_NUM_THREADS="1"),
        )
        for number in range(2)
    ]
    said = sorted(process.communicate()[0].strip() for process in both)
    assert said == ["made", "refused"]
    open_bundle(tmp_path / "bundle", verify=True)[0].close()


def test_inspection_of_a_bundle_is_json(bundles: Callable[..., Path]) -> None:
    json.dumps(describe(bundles(**CHANGES)))
