"""Bundles of the built-in models in the cache folder, assembled or exported at another precision."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from hamburger_edge.assembling import assembled_bundle, cached_bundle, can_assemble
from hamburger_edge.errors import InputError
from hamburger_edge.exporting import export_checkpoint
from hamburger_edge.support.terminal import ProgressBar
from hamburger_edge.support.version import package_version


def built_in_bundle(name: str, precision: str | None = None) -> Path:
    """Return the bundle of a built-in model, made by this version from the current weights.

    Without a precision, it is the assembled bundle if the model has one, else an int8 export.
    """
    from hamburger_edge.models.checkpoints.built_in import NAMES, find_built_in, nearest_name

    if name not in NAMES:
        near = nearest_name(name)
        remedy = "for a checkpoint of your own  hamburger-edge export CHECKPOINT -o bundle"
        remedy = f"did you mean {near}?" if near else remedy
        raise InputError(f"{name!r} is not built in ({', '.join(NAMES)} are): {remedy}")
    checkpoint = find_built_in(name)
    assert checkpoint is not None
    with ProgressBar() as progress:
        if precision is None and can_assemble(checkpoint):
            return assembled_bundle(checkpoint, progress=progress)
        chosen = precision or "int8"

        def export(bundle: Path) -> None:
            print(f"exporting {name} ({chosen}) to {bundle}")
            shutil.rmtree(bundle, ignore_errors=True)  # an export does not replace a damaged bundle
            export_checkpoint(checkpoint, bundle, precision=chosen, force=True, progress=progress)

        content = f"{package_version()} {_weights_digest(checkpoint)}"
        return cached_bundle(f"{name}-{chosen}", content, export)


def _weights_digest(folder: Path) -> str:
    kinds = (".json", ".jsonl", ".safetensors")
    files = [path for path in sorted(folder.iterdir()) if path.suffix in kinds]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
