"""Bundles in the cache folder, made at their first use; a checkpoint's is assembled without PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
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
    """Return the bundle of this checkpoint's assembly; make it if it is not current.

    Making it may fetch the base.
    """
    from hamburger_edge.export.assembly.assemble import assemble

    place = hashlib.sha256(str(checkpoint.resolve()).encode()).hexdigest()[:8]
    name = f"{checkpoint.resolve().name}-{place}"
    source = sha256(_description(checkpoint))
    return cached_bundle(name, source, lambda bundle: assemble(checkpoint, bundle, progress=progress))


def cached_bundle(name: str, source: str, make: Callable[[Path], object]) -> Path:
    """Return the bundle of this name in the cache folder; `make` it if it is not current.

    It is current if this version made it from this source (a hash), and if it is complete and readable.
    """
    bundle = cache_folder() / "bundles" / name
    stamp = bundle.with_name(f"{name}.stamp")
    identity = f"{__version__} {source}"
    if not _is_current(bundle, stamp, identity):
        with locked(lock_for(stamp)):
            if not _is_current(bundle, stamp, identity):  # another process may have made it
                make(bundle)
                stamp.write_text(identity, encoding="utf-8")
    return bundle


def _description(checkpoint: Path) -> Path:
    from hamburger_edge.models.checkpoints.manifest import PARTS

    return checkpoint / PARTS / FILE_NAME


def _is_current(bundle: Path, stamp: Path, identity: str) -> bool:
    try:
        if stamp.read_text(encoding="utf-8") != identity:
            return False
        check_files(bundle, load_manifest(bundle))
    except (OSError, UnicodeDecodeError, BundleError):
        return False
    return True
