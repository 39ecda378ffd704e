"""Bundles made without PyTorch are the exported ones, byte for byte."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.places import contents, names
from helpers.toys.toy_bundles import PLAIN, saved_toy, saved_with_fewer_layers, saved_with_fewer_tokens
from helpers.without_extras import without_extras

import hamburger_edge
from hamburger_edge import export_checkpoint
from hamburger_edge.assembling import assembled_bundle
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.export.assembly.assemble import assemble
from hamburger_edge.models.bases.sources.fetch import base_folder, is_complete
from hamburger_edge.models.checkpoints.built_in import NAMES, ZOO
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.facts import write_into

LARGEST_PARTS = 1_000_000  # bytes that a model's assembly may add to the zoo


def export_without_pytorch(checkpoint: Path, bundle: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, as an app's developer has it: a bundle in a folder is what other languages load."""
    program = "from hamburger_edge.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    return without_extras(program, "export", checkpoint, "-o", bundle, *words)


def assembled(checkpoint: Path, bundle: Path) -> dict[str, bytes]:
    done = export_without_pytorch(checkpoint, bundle, "--precision", "int8")
    assert done.returncode == 0, done.stderr
    return contents(bundle)


def exported(folder: Path, **changes: object) -> tuple[Path, Path]:
    """A toy checkpoint with its assembly, and its bundle."""
    checkpoint = saved_toy(folder / "toy", **changes)
    bundle = export_checkpoint(checkpoint, folder / "bundle", precision="int8", verify=False, assembly=True)
    return checkpoint, bundle


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied_head": False, "qk_norm": True, **PLAIN},
        {"draft_vocab_size": 0, "stop_rule": "after", "position_rule": "slot"},
    ],
    ids=["draft vocabulary, tied head", "head of its own, plain model", "no draft vocabulary"],
)
def test_assembled_bundle_equals_the_exported_one(changes: dict[str, object], tmp_path: Path) -> None:
    checkpoint, bundle = exported(tmp_path, **changes)
    assert assembled(checkpoint, tmp_path / "assembled") == contents(bundle)


@pytest.mark.parametrize("saved", [saved_with_fewer_layers, saved_with_fewer_tokens])
def test_checkpoint_that_keeps_parts_of_its_base_is_assembled(
    saved: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = saved(tmp_path / "toy", head_dim=32)
    bundle = export_checkpoint(checkpoint, tmp_path / "bundle", precision="int8", verify=False, assembly=True)
    assert assembled(checkpoint, tmp_path / "assembled") == contents(bundle)


def test_terms_of_the_base_are_in_the_assembled_bundle(tmp_path: Path) -> None:
    """Also if they came to the checkpoint after its assembly; the bundle's sessions stay valid."""
    checkpoint, bundle = exported(tmp_path)
    before = load_manifest(bundle)
    (checkpoint / "LICENSE").write_text("do as you like")
    (checkpoint / "NOTICE").write_text("a toy, by somebody")
    added = assemble(checkpoint, tmp_path / "added")
    again = export_checkpoint(checkpoint, tmp_path / "again", precision="int8", verify=False, assembly=True)
    assert assembled(checkpoint, tmp_path / "assembled") == contents(again) == contents(added)
    after = load_manifest(again)
    assert {"LICENSE", "NOTICE"} == {entry.path for entry in after.files} - {
        entry.path for entry in before.files
    }
    assert after.fingerprint == before.fingerprint


def test_load_opens_the_assembled_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    checkpoint, _ = exported(tmp_path)
    stages: list[str] = []
    with hamburger_edge.load(checkpoint, progress=lambda stage, *_: stages.append(stage)) as model:
        assert (model.info.backend, model.info.precision) == ("onnx", "int8")
    assert "assembling" in stages
    stages.clear()
    with hamburger_edge.load(checkpoint, progress=lambda stage, *_: stages.append(stage)):
        assert not stages
    with hamburger_edge.load(checkpoint, "torch") as model:
        assert model.info.backend == "torch"
    # other weights of the same shape
    shutil.copy(saved_toy(tmp_path / "other", seed=1) / "graft.safetensors", checkpoint)
    with pytest.raises(BundleError, match=r"weights\.bin differs .* export --assembly"):
        assemble(checkpoint, tmp_path / "assembled")
    assert not (tmp_path / "assembled").exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_equal_checkpoints_share_one_bundle(home: Path, tmp_path: Path) -> None:
    """A regression: each environment left another bundle."""
    copies = [Path(shutil.copytree(ZOO / "tiny", tmp_path / place / "tiny")) for place in ("here", "there")]
    bundles = {assembled_bundle(checkpoint) for checkpoint in [ZOO / "tiny", *copies]}
    assert names(home / "bundles") == [bundle.name for bundle in bundles]


def test_changed_recommendation_reaches_the_cached_bundle(home: Path, tmp_path: Path) -> None:
    """A regression: a bundle stayed current while its graphs and weights were."""
    checkpoint = Path(shutil.copytree(ZOO / "tiny", tmp_path / "tiny"))
    for confidence in (0.5, 0.75):
        write_into(checkpoint, recommended={"mode": "merge", "confidence": confidence})
        with hamburger_edge.load(checkpoint) as model:
            assert model.info.recommended.confidence == confidence


def test_first_use_deletes_leftovers_of_a_killed_one(home: Path) -> None:
    bundle = assembled_bundle(ZOO / "tiny")
    bundle.rename(bundle.with_name(f".{bundle.name}.0123abcd.partial"))
    assert assembled_bundle(ZOO / "tiny") == bundle
    assert names(bundle.parent) == [bundle.name]


def test_assembly_supports_int8_only(tmp_path: Path) -> None:
    for precision, flavor in (("int4", "fused"), ("fp32", "fused"), ("int8", "portable")):
        with pytest.raises(InputError, match="--precision int8"):
            export_checkpoint("tiny", "unwritten", precision=precision, flavor=flavor, assembly=True)
    assert export_without_pytorch(ZOO / "tiny", tmp_path / "bundle").returncode == 0
    assert "exists already: use --force" in export_without_pytorch(ZOO / "tiny", tmp_path / "bundle").stderr
    assert export_without_pytorch(ZOO / "tiny", tmp_path / "bundle", "--force").returncode == 0
    for other in (["--precision", "fp32"], ["--kv-cache-dtype", "fp32"], ["--flavor", "portable"]):
        done = export_without_pytorch(ZOO / "tiny", tmp_path / "bundle", "--force", *other)
        assert "'.[export]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_built_in_models_equal_their_exports(name: str, tmp_path: Path) -> None:
    """The manifest that comes along has the hash of every file of the export."""
    if name != "tiny" and not is_complete(base_folder("smollm2-135m")):
        pytest.skip("the base is not here: hamburger-edge fetch smollm2-135m")
    parts = ZOO / name / "assembly"
    assert sum(path.stat().st_size for path in parts.iterdir()) < LARGEST_PARTS
    made = assembled(ZOO / name, tmp_path / "bundle")["manifest.json"]
    recorded = (parts / "manifest.json").read_bytes()
    # the tokenizer's spelling is its library's
    assert facts_without("tokenizer.json", made) == facts_without("tokenizer.json", recorded)


def facts_without(path: str, manifest: bytes) -> dict[str, Any]:
    """Return a bundle's facts but for the hashes that depend on this file."""
    facts: dict[str, Any] = json.loads(manifest)
    del facts["sha256"]
    return {**facts, "files": [file for file in facts["files"] if file["path"] != path]}


def test_built_in_model_is_exported_identically_again(tmp_path: Path) -> None:
    """But for the last bits of the measured scales, which depend on the order of a processor's sums."""
    bundle = export_checkpoint(load_checkpoint("tiny"), tmp_path / "bundle", precision="int8", verify=False)
    ours, theirs = assembled(ZOO / "tiny", tmp_path / "assembled"), contents(bundle)
    (graph, scales), (other_graph, other_scales) = (
        graph_and_scales(files.pop("base.onnx")) for files in (ours, theirs)
    )
    assert graph == other_graph
    for scale, other in zip(scales, other_scales, strict=True):
        np.testing.assert_allclose(scale, other, rtol=1e-5)
    facts, other_facts = (facts_without("base.onnx", files.pop("manifest.json")) for files in (ours, theirs))
    assert facts == other_facts
    assert ours == theirs


def graph_and_scales(graph: bytes) -> tuple[bytes, list[np.ndarray]]:
    """Return a graph without its float32 arrays, and these."""
    model = onnx.load_from_string(graph)
    scales = []
    for array in model.graph.initializer:
        if array.data_type == onnx.TensorProto.FLOAT and array.raw_data:
            scales.append(np.frombuffer(array.raw_data, np.float32))
            array.ClearField("raw_data")
    return model.SerializeToString(), scales


def test_certainty_of_the_checkpoint_reaches_its_bundles(home: Path, tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(ZOO / "tiny", tmp_path / "tiny"))
    for certainty in ({"offset": 1.0, "slope": 2.0}, {"offset": 0.5, "slope": 2.5}, None):
        write_into(checkpoint, certainty=certainty)
        with hamburger_edge.load(checkpoint) as model:
            found = model.info.certainty
            assert certainty == (None if found is None else vars(found))


def test_copied_fields_of_the_checkpoint_reach_its_bundles(home: Path, tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(ZOO / "tiny", tmp_path / "tiny"))
    write_into(checkpoint, copied_fields=["slots.album"])
    for backend in ("onnx", "torch"):
        with hamburger_edge.load(checkpoint, backend=backend) as model:
            assert model.info.copied_fields == ("slots.album",)
