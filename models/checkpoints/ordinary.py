"""Ordinary models, which have no graft: an export takes one as a plain checkpoint."""

from __future__ import annotations

from pathlib import Path

from hamburger_edge.models.bases.sources.fetch import is_fetched
from hamburger_edge.models.checkpoints.built_in import NAMES
from hamburger_edge.models.checkpoints.manifest import MANIFEST

_OURS = (MANIFEST, "manifest.json")  # of checkpoints and bundles
_FILES = ("config.json", "adapter_config.json")  # of Hugging Face folders and PEFT adapters


def is_ordinary(source: str | Path) -> bool:
    """Whether this names an ordinary model: one to fetch, a GGUF file, or the folder of one."""
    path = Path(source)
    if not path.exists():
        return str(source) not in NAMES and is_fetched(str(source))
    if path.is_file():
        return path.suffix == ".gguf"
    if any((path / name).exists() for name in _OURS):
        return False
    return any((path / name).is_file() for name in _FILES) or len(list(path.glob("*.gguf"))) == 1
