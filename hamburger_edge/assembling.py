"""Bundles in the cache folder, made at their first use; a checkpoint's is assembled without PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from hamburger_edge.bundle.files import check_listed
from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError
from hamburger_edge.support.cache import cache_folder, entry_lock
from hamburger_edge.support.files import locked, sha256
from hamburger_edge.support.progress import Progress, no_progress


def can_assemble(checkpoint: Path) -> bool:
    return _description(checkpoint).is_file()


def assembled_bundle(checkpoint: Path, *, progress: Progress = no_progress) -> Path:
    """Return the bundle of this checkpoint's assembly; make it if it is not complete.

    Making it may fetch the base. Equal checkpoints share a bundle, wherever they are: its name contains a
    hash of both descriptions, which contain the hashes of the base and of all files of the bundle.
    """
    from hamburger_edge.models.checkpoints.manifest import MANIFEST

    def make(bundle: Path) -> None:
        from hamburger_edge.export.assembly.assemble import assemble

        assemble(checkpoint, bundle, progress=progress)

    content = sha256(checkpoint / MANIFEST) + sha256(_description(checkpoint))
    name = checkpoint.resolve().name
    return cached_bundle(name, content, make)


def cached_bundle(name: str, content: str, make: Callable[[Path], object]) -> Path:
    """Return the bundle made from this content in the cache folder; `make` it if it is not complete.

    Its name is `name` and a hash of `content`, which is any text that determines the bundle.
    """
    key = hashlib.sha256(content.encode()).hexdigest()[:12]
    bundle = cache_folder() / "bundles" / f"{name}-{key}"
    if not _is_complete(bundle):
        with locked(entry_lock(bundle)):
            if not _is_complete(bundle):  # another process may have made it
                make(bundle)
    return bundle


def _description(checkpoint: Path) -> Path:
    from hamburger_edge.models.checkpoints.manifest import PARTS

    return checkpoint / PARTS / FILE_NAME


def _is_complete(bundle: Path) -> bool:
    try:
        check_listed(bundle, load_manifest(bundle))  # its graphs are checked when it is opened
    except (OSError, BundleError):
        return False
    return True
