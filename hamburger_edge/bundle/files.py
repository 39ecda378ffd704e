"""The files of a bundle: list them at export, check them before use."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hamburger_edge.bundle.external_data import external_files
from hamburger_edge.bundle.manifest import FILE_NAME, FileEntry, Manifest
from hamburger_edge.drafts.draft_index import read_draft_index
from hamburger_edge.errors import BundleError
from hamburger_edge.loop.answer_facts import AnswerFacts
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.support.files import DRAFT_INDEX, sha256, write_atomically


def file_entries(folder: Path) -> Iterator[FileEntry]:
    """Yield an entry for every file below a finished folder, except the manifest."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != FILE_NAME:
            yield FileEntry(path.relative_to(folder).as_posix(), path.stat().st_size, sha256(path))


def check_files(folder: Path, manifest: Manifest, *, hashes: bool = False) -> None:
    """Check that every listed file is inside the folder and has its size; with `hashes`, also its hash.

    A graph with weights in an unlisted file raises BundleError.
    """
    check_listed(folder, manifest, hashes=hashes)
    listed = {entry.path for entry in manifest.files}
    for graph in manifest.graphs:
        if strange := external_files(folder / graph.file) - listed:
            raise BundleError(
                f"{folder / graph.file}: takes weights from {min(strange)!r}, which the manifest does not "
                "list: export the bundle again"
            )


def check_listed(folder: Path, manifest: Manifest, *, hashes: bool = False) -> None:
    """Check the listed files alone, without reading the graphs."""
    root = folder.resolve()
    for entry in manifest.files:
        path = folder / entry.path
        try:
            _check_file(path, root, entry, hashes=hashes)
        except (OSError, RuntimeError) as error:  # RuntimeError: circular links
            reason = getattr(error, "strerror", None) or "its links go in a circle"
            raise BundleError(f"{path}: cannot be read ({reason}): copy the bundle again") from error


def _check_file(path: Path, root: Path, entry: FileEntry, *, hashes: bool) -> None:
    if not path.resolve().is_relative_to(root):
        raise BundleError(f"{path}: a link that leaves the bundle: copy the file itself into the folder")
    if not path.is_file():
        raise BundleError(f"{path}: missing: copy the whole bundle again, or export it again")
    size = path.stat().st_size
    if size != entry.bytes:
        raise BundleError(
            f"{path}: {size} bytes, but the manifest says {entry.bytes}: truncated or changed; "
            "copy the bundle again"
        )
    if hashes and sha256(path) != entry.sha256:
        raise BundleError(f"{path}: its content differs from the manifest's sha256: copy the bundle again")


def put_draft_index(folder: Path, manifest: Manifest, data: bytes) -> None:
    """Give a bundle this draft index; at any moment it has the former one, none or this one."""
    others = [entry for entry in manifest.files if entry.path != DRAFT_INDEX]
    entry = FileEntry(DRAFT_INDEX, len(data), hashlib.sha256(data).hexdigest())
    listed = sorted([*others, entry], key=lambda entry: entry.path)
    path = folder / DRAFT_INDEX
    try:
        dataclasses.replace(manifest, files=tuple(others)).save(folder)
        with write_atomically(path) as temporary:
            temporary.write_bytes(data)
        dataclasses.replace(manifest, files=tuple(listed)).save(folder)
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be written ({error.strerror}): check space and permissions"
        ) from error


def model_info(folder: Path, manifest: Manifest, **measured: Any) -> ModelInfo:
    """Return the properties of a bundle; `measured` are the fields that its runtime determines."""
    model = manifest.model
    facts = AnswerFacts(**{name: getattr(manifest, name) for name in AnswerFacts.names()})
    has_index = any(entry.path == DRAFT_INDEX for entry in manifest.files)
    return ModelInfo(
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        max_group_tokens=model.max_group_tokens,
        position_rule=model.position_rule,
        stop_rule=model.stop_rule,
        context_length=model.context_length,
        eos_ids=model.eos_ids,
        draft_vocab=None if model.draft_vocab is None else np.array(model.draft_vocab, np.int64),
        **facts.of_model,
        draft_index=read_draft_index(folder / DRAFT_INDEX, model.vocab_size) if has_index else None,
        **measured,
    )
