"""What to recommend, written where it is read: into a bundle, or a checkpoint for its bundles."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.models.checkpoints.facts import write_into


def tell_bundle(folder: Path, setting: Recommended) -> None:
    try:
        replace(load_manifest(folder), recommended=setting).save(folder)
    except OSError as error:
        raise BundleError(
            f"{folder / FILE_NAME}: cannot be written ({error.strerror}): check space and permissions"
        ) from error


def tell_checkpoint(folder: Path, setting: Recommended) -> None:
    write_into(folder, recommended=asdict(setting))
