"""Save checkpoints: whole folders or none. checkpoint.py lists their files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.sources.fetch import base_folder, notice_of
from hamburger_edge.models.bases.sources.terms import NOTICE, copy_terms, terms_in
from hamburger_edge.models.bases.weights import check_tokenizer, shapes
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION
from hamburger_edge.models.checkpoints.delta import check_delta
from hamburger_edge.models.checkpoints.manifest import (
    BASE,
    DELTA,
    FORMAT,
    GRAFT,
    MANIFEST,
    PARTS,
    BaseReference,
    CheckpointManifest,
    read_manifest,
)
from hamburger_edge.models.checkpoints.rows import RowPrecision, save_rows
from hamburger_edge.support.files import DRAFT_INDEX
from hamburger_edge.support.folders import publish, unexpected_files
from hamburger_edge.support.strict import from_mapping

CARD = "README.md"  # for people; `tune` writes one ...
PICTURE = "reliability.svg"  # ... and the pictures beside it
CURVES = "curves.png"


def check_target(folder: str | Path) -> Path:
    """Check the target before work begins: a new folder, or one that holds nothing else."""
    folder = Path(folder).absolute()
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder}: is a file, which saving would delete: choose another folder")
    ours = {
        MANIFEST,
        GRAFT,
        DELTA,
        BASE,
        "tokenizer.json",
        CALIBRATION,
        DRAFT_INDEX,
        CARD,
        PICTURE,
        CURVES,
        PARTS,
        *terms_in(folder),
    }
    if others := unexpected_files(folder, ours):
        raise CheckpointError(
            f"{folder}: holds {others[0]}, which saving would delete: choose another folder"
        )
    there = next((parent for parent in folder.parents if parent.exists()), folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise CheckpointError(f"{folder}: {there} is not a writable folder: choose another")
    return folder


def save_checkpoint(
    folder: str | Path,
    model: Hamburger,
    *,
    base: Mapping[str, Any],
    tokenizer: Path | None,
    chat_template: Mapping[str, Any] | None,
    provenance: Mapping[str, Any],
    license: Mapping[str, str | None],
    base_delta: Mapping[str, Tensor] | None = None,
    rows: RowPrecision = "fp16",
) -> Path:
    """Write a whole checkpoint folder or none. `base` is a `BaseReference` as a dictionary."""
    folder = check_target(folder)
    if base_delta and base.get("kind") == "embedded":
        raise CheckpointError(
            f"{folder}: an embedded base already holds its changes: save without base_delta"
        )
    manifest = CheckpointManifest(
        format=FORMAT,
        config=model.config,
        base=_from_here(from_mapping(BaseReference, dict(base), "base"), folder),
        tokenizer=None if tokenizer is None else "tokenizer.json",
        chat_template=None if chat_template is None else dict(chat_template),
        provenance=dict(provenance),
        license=dict(license),
    )
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        state = model.state_dict()
        graft = {name: tensor for name, tensor in state.items() if not name.startswith("base.")}
        if not model.config.draft_vocab_size:
            del graft["draft_vocab"]
        if graft:
            save_rows(partial / GRAFT, graft, rows)
        if manifest.base.kind == "embedded":
            save_rows(partial / BASE, {n: state[f"base.{n}"] for n in shapes(model.base)}, rows)
        if (terms := _beside_base(base)) is not None:
            copy_terms(terms, partial)
        if base.get("kind") == "fetch" and (notice := notice_of(str(base["name"]))):
            (partial / NOTICE).write_text(notice, encoding="utf-8")
        if base_delta:
            check_delta(base_delta, shapes(model.base), "base_delta")
            save_rows(partial / DELTA, base_delta, rows)
        if tokenizer is not None:
            check_tokenizer(Path(tokenizer), model.config.base.vocab_size)
            shutil.copyfile(tokenizer, partial / "tokenizer.json")
        text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=False)
        (partial / MANIFEST).write_text(text + "\n", encoding="utf-8")
        publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def copy_checkpoint(source: Path, folder: str | Path, *, card: str) -> Path:
    """Copy a checkpoint with its card, whole or not at all."""
    folder = check_target(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(source, partial)
        manifest = read_manifest(source / MANIFEST)
        base = manifest.base
        if base.path is not None:  # relative to the copy
            base = _from_here(replace(base, path=str((source / base.path).absolute())), folder)
        text = json.dumps(replace(manifest, base=base).to_json(), indent=1, ensure_ascii=False)
        (partial / MANIFEST).write_text(text + "\n", encoding="utf-8")
        (partial / CARD).write_text(card, encoding="utf-8")
        publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _from_here(base: BaseReference, folder: Path) -> BaseReference:
    """Make a base's path relative to the checkpoint, so that both can move together."""
    if base.path is None or not Path(base.path).is_absolute():
        return base
    try:
        path = os.path.relpath(Path(base.path).resolve(), folder.resolve())
    except ValueError:  # on another drive
        return base
    return replace(base, path=Path(path).as_posix())


def _beside_base(base: Mapping[str, Any]) -> Path | None:
    """Return the folder of a base's files."""
    if base.get("kind") == "fetch":
        return base_folder(str(base["name"]))
    if base.get("kind") == "path":
        path = Path(str(base["path"]))
        return path if path.is_dir() else path.parent
    return None
