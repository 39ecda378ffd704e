"""The cache folder: what is fetched, built or locked, and can be made again."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """HAMBURGER_EDGE_HOME, or this platform's cache folder."""
    if chosen := os.environ.get("HAMBURGER_EDGE_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        parent = Path.home() / "Library" / "Caches"
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return parent / "hamburger-edge"


def lock_for(path: Path) -> Path:
    """The file to lock while something is made at `path`, beside which none shall stay: in the cache folder,
    or the temporary one, where the former cannot be written to."""
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    user = str(os.getuid()) if hasattr(os, "getuid") else ""
    elsewhere = Path(tempfile.gettempdir()) / f"hamburger-edge-{user}"
    for folder in (cache_folder() / "locks", elsewhere / "locks"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / name, "a+b"):
                return folder / name
        except OSError as error:
            refused = error
    raise refused
