"""A checkpoint's bundle in the cache folder, assembled without PyTorch at its first use."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError
from hamburger_edge.support.cache import cache_folder, lock_for
from hamburger_edge.support.files import locked, sha256
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.version import __version__


def can_assemble(checkpoint: Path) -> bool:
    return _description(checkpoint).is_file()


def assembled_bundle(checkpoint: Path, *, progress: Progress = no_progress) -> Path:
    """Return the bundle of this version and this checkpoint's assembly; make it if it is not current.

    Making it may fetch the base.
    """
    from hamburger_edge.export.assembly.assemble import assemble

    place = hashlib.sha256(str(checkpoint.resolve()).encode()).hexdigest()[:8]
    bundle = cache_folder() / "bundles" / f"{checkpoint.resolve().name}-{place}"
    identity = f"{__version__} {sha256(_description(checkpoint))}"
    if not _is_current(bundle, identity):
        with locked(lock_for(bundle)):
            if not _is_current(bundle, identity):  # another process may have made it
                assemble(checkpoint, bundle, progress=progress)
                _stamp(bundle).write_text(json.dumps(identity), encoding="utf-8")
    return bundle


def _description(checkpoint: Path) -> Path:
    from hamburger_edge.models.checkpoints.manifest import PARTS

    return checkpoint / PARTS / FILE_NAME


def _stamp(bundle: Path) -> Path:
    """Return the path of the file next to a bundle that stores its version and assembly hash."""
    return bundle.with_name(f"{bundle.name}.stamp")


def _is_current(bundle: Path, identity: str) -> bool:
    """Whether the bundle has this identity, all its files, and a readable format."""
    try:
        if json.loads(_stamp(bundle).read_text(encoding="utf-8")) != identity:
            return False
        check_files(bundle, load_manifest(bundle))
    except (OSError, ValueError, BundleError):
        return False
    return True
