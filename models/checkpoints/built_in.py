"""The checkpoints that come with the project, by name.

In a checkout they lie in `models/zoo`, beside this folder. Installed they are a package of their own,
`hamburger_edge_zoo`, which those who only run bundles go without.
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


ZOO = _zoo()  # where they are, or would be


def built_in() -> list[str]:
    """Names of those that are here."""
    return sorted(path.parent.name for path in ZOO.glob(f"*/{MANIFEST}"))


def find_built_in(name: str) -> Path | None:
    """The folder of the built-in checkpoint of this name, if there is one."""
    if name in built_in():
        return ZOO / name
    if name in NAMES:
        raise missing(f"the built-in model {name}", "./models/zoo")
    return None
