"""What was found out of a model, written where it is read: into a bundle, or a checkpoint for its bundles."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, CheckpointError
from hamburger_edge.loop.backend import Recommended
from hamburger_edge.support.files import sha256, write_atomically
from hamburger_edge.support.strict import read_json

CHECKPOINT = "hamburger.json"  # what `models.checkpoints.manifest` calls MANIFEST; no PyTorch is needed here
SUMS = "SHA256SUMS"  # of the checkpoints that come with the project


def tell_bundle(folder: Path, setting: Recommended) -> None:
    try:
        replace(load_manifest(folder), recommended=setting).save(folder)
    except OSError as error:
        raise BundleError(
            f"{folder / FILE_NAME}: cannot be written ({error.strerror}): check space and permissions"
        ) from error


def check_checkpoint(folder: Path) -> Path:
    """Asked before work begins."""
    path = folder / CHECKPOINT
    if not path.is_file():
        raise CheckpointError(f"{folder}: holds no {CHECKPOINT}: not a HAMburger checkpoint")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CheckpointError(f"{folder}: may not be written to: copy it, and name the copy")
    return folder


def tell_checkpoint(folder: Path, setting: Recommended) -> None:
    write_into(folder, recommended=asdict(setting))


def write_into(folder: Path, **facts: Any) -> None:
    """Into a checkpoint's manifest, and its hash where that is recorded."""
    path = folder / CHECKPOINT
    manifest = read_json(path)
    try:
        with write_atomically(path) as temporary:
            text = json.dumps(manifest | facts, indent=1, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")
        if (sums := folder / SUMS).is_file():
            lines = [line for line in sums.read_text().splitlines() if not line.endswith(f"  {CHECKPOINT}")]
            lines.append(f"{sha256(path)}  {CHECKPOINT}")
            with write_atomically(sums) as temporary:
                temporary.write_text("\n".join(sorted(lines, key=lambda line: line.split()[-1])) + "\n")
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error.strerror}): check space and permissions"
        ) from error
