"""Bundles made without PyTorch are the exported ones, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from places import contents
from toy_bundles import saved_toy
from without_extras import without_extras

import hamburger_edge
from hamburger_edge import export_checkpoint
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.export.assembly.assemble import assemble
from hamburger_edge.models.bases.fetch import base_folder, is_complete
from hamburger_edge.models.checkpoints.built_in import NAMES, find_built_in
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

LARGEST_PARTS = 1_000_000  # bytes that a model's assembly may add to the zoo
PROGRAM = """
from pathlib import Path
from hamburger_edge.export.assembly.assemble import assemble
assemble(Path(sys.argv[1]), Path(sys.argv[2]))
assert not set(LACKING) & set(sys.modules)
"""


def assembled(checkpoint: Path, bundle: Path) -> dict[str, bytes]:
    """The files of a bundle that a process without PyTorch makes."""
    done = without_extras(PROGRAM, checkpoint, bundle)
    assert done.returncode == 0, done.stderr
    return contents(bundle)


def exported(folder: Path, **changes: object) -> tuple[Path, Path]:
    """A toy checkpoint with its assembly, and its bundle."""
    checkpoint = saved_toy(folder / "toy", **changes)
    bundle = export_checkpoint(checkpoint, folder / "bundle", precision="int8", verify=False, assembly=True)
    return checkpoint, bundle


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """With a draft vocabulary and a tied head."""
    return exported(tmp_path_factory.mktemp("assembly"))


def test_a_checkpoint_is_assembled(toy: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, bundle = toy
    assert assembled(checkpoint, tmp_path / "assembled") == contents(bundle)


@pytest.mark.parametrize(
    "changes",
    [
        {"tied_head": False, "qk_norm": True, "max_group_tokens": 1},
        {"draft_vocab_size": 0, "stop_rule": "after", "position_rule": "slot"},
    ],
    ids=["head of its own, single tokens", "no draft vocabulary"],
)
def test_other_checkpoints_are_assembled(changes: dict[str, object], tmp_path: Path) -> None:
    checkpoint, bundle = exported(tmp_path, **changes)
    assert assembled(checkpoint, tmp_path / "assembled") == contents(bundle)


def test_load_opens_the_assembled_bundle(
    toy: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    checkpoint, _ = toy
    stages: list[str] = []
    with hamburger_edge.load(checkpoint, progress=lambda stage, *_: stages.append(stage)) as model:
        assert (model.info.backend, model.info.precision) == ("onnx", "int8")
    assert "assembling" in stages
    stages.clear()
    with hamburger_edge.load(checkpoint, progress=lambda stage, *_: stages.append(stage)):
        assert not stages
    with hamburger_edge.load(checkpoint, "torch") as model:
        assert model.info.backend == "torch"


def test_changed_weights_are_noticed(toy: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(toy[0], tmp_path / "toy"))
    other = saved_toy(tmp_path / "other" / "toy", seed=1)
    (checkpoint / "graft.safetensors").write_bytes((other / "graft.safetensors").read_bytes())
    with pytest.raises(BundleError, match=r"weights\.bin differs .* export --assembly"):
        assemble(checkpoint, tmp_path / "assembled")
    assert not (tmp_path / "assembled").exists()


@pytest.mark.parametrize(
    "options", [{"precision": "int4"}, {"precision": "fp32"}, {"precision": "int8", "flavor": "portable"}]
)
def test_other_precisions_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InputError, match="--precision int8"):
        export_checkpoint("tiny", "unwritten", assembly=True, **options)


@pytest.mark.parametrize("name", NAMES)
def test_built_in_models_are_what_was_exported(name: str, tmp_path: Path) -> None:
    """The manifest that comes along has the hash of every file of the export."""
    checkpoint = find_built_in(name)
    assert checkpoint is not None
    if name != "tiny" and not is_complete(base_folder("smollm2-135m")):
        pytest.skip("the base is not here: hamburger-edge fetch smollm2-135m")
    parts = checkpoint / "assembly"
    assert sum(path.stat().st_size for path in parts.iterdir()) < LARGEST_PARTS
    made = assembled(checkpoint, tmp_path / "bundle")
    ours, theirs = (
        json.loads(text) for text in (made["manifest.json"], (parts / "manifest.json").read_bytes())
    )
    for facts in (ours, theirs):  # the tokenizer's spelling is its library's
        del facts["sha256"]
        facts["files"] = [file for file in facts["files"] if file["path"] != "tokenizer.json"]
    assert ours == theirs


def test_a_built_in_model_is_exported_so_again(tmp_path: Path) -> None:
    bundle = export_checkpoint(load_checkpoint("tiny"), tmp_path / "bundle", precision="int8", verify=False)
    found = find_built_in("tiny")
    assert found is not None
    assert assembled(found, tmp_path / "assembled") == contents(bundle)


def test_the_first_answer_needs_the_core_alone(tmp_path: Path) -> None:
    program = "from hamburger_edge.cli.main import main\nsys.exit(main(['run', 'tiny', 'What is 7 plus 8?']))"
    home = {**os.environ, "HAMBURGER_EDGE_HOME": str(tmp_path)}
    done = without_extras(program, env=home)
    assert done.returncode == 0, done.stderr
    assert "15" in done.stdout
    assert "assembling" in done.stderr


def test_export_needs_no_pytorch_for_the_bundle_that_the_assembly_describes(tmp_path: Path) -> None:
    """An app's developer has none: a bundle in a folder is what other languages load."""

    def export(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["export", "tiny", "-o", str(tmp_path / "bundle"), *words]
        program = f"from hamburger_edge.cli.main import main\nsys.exit(main({command!r}))"
        return without_extras(program)

    done = export()
    assert done.returncode == 0, done.stderr
    found = find_built_in("tiny")
    assert found is not None
    assert contents(tmp_path / "bundle") == assembled(found, tmp_path / "assembled")
    assert "exists already: use --force" in export().stderr
    assert export("--force").returncode == 0
    for other in (["--precision", "fp32"], ["--kv-cache-dtype", "fp32"], ["--flavor", "portable"]):
        assert "'.[export]'" in export("--force", *other).stderr
