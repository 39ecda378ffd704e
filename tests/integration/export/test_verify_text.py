"""`verify` compares what stands around the graphs, too: it decides what is said as they do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from manifests import read_manifest, write_manifest
from toy_bundles import save_toy, toy_checkpoint

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.errors import ParityError
from hamburger_edge.export.parity.gate import verify


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the toy bundle."""
    folder = tmp_path_factory.mktemp("made")
    return save_toy(folder / "checkpoint", toy_checkpoint(folder / "toy", draft_vocab_size=100))


@pytest.fixture
def folder(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "bundle"))


def reverse(manifest: Any) -> None:
    manifest["model"]["draft_vocab"].reverse()


def retouch(manifest: Any) -> None:
    manifest["chat_template"]["before_answer"] += " "


def add_end(manifest: Any) -> None:
    manifest["model"]["eos_ids"] = [5]


@pytest.mark.parametrize(
    ("change", "message"), [(reverse, "draft_vocab"), (retouch, "chat_template"), (add_end, "eos_ids")]
)
def test_a_changed_manifest_is_not_its_checkpoints(
    change: Any, message: str, folder: Path, checkpoint: Path
) -> None:
    """Its own sha256 and that of every file are right; the words would be others."""
    manifest = read_manifest(folder)
    change(manifest)
    write_manifest(folder, manifest)
    with pytest.raises(ParityError, match=f"{message} is .*another model"):
        verify(folder, checkpoint)


def test_a_changed_tokenizer_is_not_its_checkpoints(folder: Path, checkpoint: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-1]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    files = [vars(entry) for entry in file_entries(folder)]
    write_manifest(folder, {**read_manifest(folder), "files": files})
    with pytest.raises(ParityError, match="tokenizer is not the checkpoint's"):
        verify(folder, checkpoint)
