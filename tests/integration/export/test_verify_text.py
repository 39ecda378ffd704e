"""`verify` compares what stands around the graphs, too: it decides what is said as they do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from manifests import read_manifest, write_manifest
from toy_bundles import toy_checkpoint
from toy_checkpoints import save

from hamburger_edge import export_checkpoint as export
from hamburger_edge.bundle.files import file_entries
from hamburger_edge.errors import ParityError
from hamburger_edge.export.parity.gate import verify


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bundle and its checkpoint."""
    folder = tmp_path_factory.mktemp("made")
    toy = toy_checkpoint(folder / "toy", draft_vocab_size=100)
    checkpoint = save(
        folder / "checkpoint", toy.model, tokenizer=toy.tokenizer, chat_template=toy.chat_template
    )
    return export(checkpoint, folder / "bundle", precision="fp32", verify=False), checkpoint


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
    change: Any, message: str, made: tuple[Path, Path], tmp_path: Path
) -> None:
    """Its own sha256 and that of every file are right; the words would be others."""
    bundle = Path(shutil.copytree(made[0], tmp_path / "bundle"))
    manifest = read_manifest(bundle)
    change(manifest)
    write_manifest(bundle, manifest)
    with pytest.raises(ParityError, match=f"{message} is .*another model"):
        verify(bundle, made[1])


def test_a_changed_tokenizer_is_not_its_checkpoints(made: tuple[Path, Path], tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(made[0], tmp_path / "bundle"))
    tokenizer = json.loads((bundle / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-1]
    (bundle / "tokenizer.json").write_text(json.dumps(tokenizer))
    files = [vars(entry) for entry in file_entries(bundle)]
    write_manifest(bundle, {**read_manifest(bundle), "files": files})
    with pytest.raises(ParityError, match="tokenizer is not the checkpoint's"):
        verify(bundle, made[1])
