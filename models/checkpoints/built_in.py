"""The built-in checkpoints, by name.

In a checkout they are in `models/zoo`. Installed they are a separate package, `hamburger_edge_zoo`, which
running bundles does not need.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hamburger_edge.errors import missing
from hamburger_edge.models.checkpoints.manifest import MANIFEST

NAMES = ("proofread", "smollm2-135m", "tiny", "voice-commands")


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
