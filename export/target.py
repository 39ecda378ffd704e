"""The output folder of an export: which bundle it may replace."""

from __future__ import annotations

from pathlib import Path

from hamburger_edge.bundle.manifest import FILE_NAME, KIND
from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.support.folders import unexpected_files
from hamburger_edge.support.strict import read_json


def check_target(out: Path, *, force: bool) -> None:
    """Refuse a target that is not a bundle, or a bundle that may not be replaced."""
    if not out.name:
        raise InputError(f"{out}: not a folder name for a bundle")
    if out.exists() and not force:
        raise InputError(f"{out} exists already: use --force to replace it, or choose another folder")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    ours = _files_of_bundle(out)
    if not ours:
        raise InputError(
            f"{out} is not a bundle: it will not be replaced; choose another folder, or delete it"
        )
    if others := unexpected_files(out, ours):
        raise InputError(
            f"{out} holds {others[0]}, which exporting would delete: choose another or move it away"
        )


def _files_of_bundle(folder: Path) -> set[str]:
    """Return the files in a bundle's manifest, of any version; empty if this is no bundle."""
    try:
        data = read_json(folder / FILE_NAME)
    except ConfigError:
        return set()
    if not isinstance(data, dict) or data.get("kind") != KIND:
        return set()
    listed = data.get("files")
    files = listed if isinstance(listed, list) else []
    return {FILE_NAME, *(str(file.get("path")) for file in files if isinstance(file, dict))}
