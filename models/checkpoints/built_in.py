"""The built-in checkpoints, by name, and the folder that a name stands for.

In a checkout they are in `models/zoo`. Installed they are a separate package, `hamburger_edge_zoo`, which
running bundles does not need.
"""

from __future__ import annotations

import importlib.util
from difflib import get_close_matches
from pathlib import Path

from hamburger_edge.errors import CheckpointError, HamburgerError, missing
from hamburger_edge.models.checkpoints.manifest import MANIFEST, is_lightning

NAMES = ("home-commands", "proofread", "smollm2-135m", "tiny", "voice-commands")
_LISTED = ", ".join(NAMES)
CHECKPOINT = "name the folder of a checkpoint"


def _zoo() -> Path:
    beside = Path(__file__).parents[1] / "zoo"
    installed = importlib.util.find_spec("hamburger_edge_zoo")
    folders = installed and installed.submodule_search_locations
    return Path(folders[0]) if folders and not beside.is_dir() else beside


ZOO = _zoo()  # their folder, which need not exist


def built_in() -> list[str]:
    """Return the names of the available ones."""
    return sorted(path.parent.name for path in ZOO.glob(f"*/{MANIFEST}"))


def find_built_in(name: str) -> Path | None:
    """Return the folder of the built-in checkpoint of this name, if it exists."""
    if name in built_in():
        return ZOO / name
    if name in NAMES:
        raise missing(f"the built-in model {name}", "./models/zoo")
    return None


def nearest_name(name: str) -> str | None:
    """Return the built-in name that this one probably means."""
    return next(iter(get_close_matches(name.lower(), NAMES, n=1)), None)


def find_folder(
    source: str | Path,
    error: type[HamburgerError] = CheckpointError,
    remedy: str = CHECKPOINT,
) -> Path:
    """Return the folder `source`, else that of the built-in checkpoint of this name, else raise `error`.

    A Lightning checkpoint is a file, and stands for itself.
    """
    folder = Path(source)
    if folder.is_dir() or (is_lightning(folder) and folder.is_file()):
        return folder
    if built_in := find_built_in(str(source)):
        return built_in
    if folder.exists():
        raise error(f"{folder}: a file, not a folder: name a folder, or a built-in model ({_LISTED})")
    if len(folder.parts) > 1:
        raise error(f"{folder}: there is no such folder: {remedy}")
    near = nearest_name(folder.name)
    remedy = f"did you mean {near}?" if near else remedy
    raise error(f"{folder}: no such folder, and no built-in model of that name ({_LISTED}): {remedy}")


def resolve(source: str | Path, remedy: str = CHECKPOINT) -> Path:
    """Return the folder of a checkpoint: a path, or a built-in name."""
    folder = find_folder(source, remedy=remedy)
    if not (folder / MANIFEST).exists():
        raise CheckpointError(f"{folder}: holds no {MANIFEST}, not a HAMburger checkpoint: {remedy}")
    return folder
