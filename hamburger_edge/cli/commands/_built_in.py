"""Bundles of the built-in models in the cache folder, assembled or exported at another precision."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.support.terminal import ProgressBar


def built_in_bundle(name: str, precision: str | None = None) -> Path:
    """Return the bundle of a built-in model, made by this version from the current weights.

    Without a precision, it is the assembled bundle if the model has one, else an int8 export.
    """
    from hamburger_edge import __version__
    from hamburger_edge.assembling import assembled_bundle, can_assemble
    from hamburger_edge.exporting import export_checkpoint
    from hamburger_edge.models.checkpoints.built_in import NAMES, find_built_in
    from hamburger_edge.support.cache import cache_folder

    def weights_digest(folder: Path) -> str:
        kinds = (".json", ".jsonl", ".safetensors")
        files = [path for path in sorted(folder.iterdir()) if path.suffix in kinds]
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    if name not in NAMES:
        raise InputError(
            f"{name!r} is not built in ({', '.join(NAMES)} are): for a checkpoint of your own  "
            f"hamburger-edge export {name} -o bundle"
        )
    checkpoint = find_built_in(name)
    assert checkpoint is not None
    if precision is None and can_assemble(checkpoint):
        with ProgressBar() as progress:
            return assembled_bundle(checkpoint, progress=progress)
    precision = precision or "int8"
    bundle = cache_folder() / "bundles" / f"{name}-{precision}"
    stamp = bundle.with_name(f"{bundle.name}.stamp")  # the version and the weights of the export
    identity = f"{__version__} {weights_digest(checkpoint)}"
    readable = _readable(bundle)
    if _stamped(stamp) != identity or not readable:
        print(f"exporting {name} ({precision}) to {bundle}")
        with ProgressBar() as progress:
            if not readable:  # a damaged folder in our cache can be deleted
                shutil.rmtree(bundle, ignore_errors=True)
            export_checkpoint(checkpoint, bundle, precision=precision, force=True, progress=progress)
        stamp.write_text(identity, encoding="utf-8")
    return bundle


def _readable(bundle: Path) -> bool:
    """Return whether the bundle is complete and its format is supported."""
    try:
        check_files(bundle, load_manifest(bundle))
    except BundleError:
        return False
    return True


def _stamped(stamp: Path) -> str | None:
    try:
        return stamp.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
