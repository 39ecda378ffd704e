"""The cache folder for downloads, built files and locks; its contents can be made again."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return HAMBURGER_EDGE_HOME, or hamburger-edge in the platform's cache folder."""
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
    """Return the file to lock while something is made at `path`.

    It lies in the cache folder, or in the temporary folder if the cache folder is not writable. No lock file
    is left beside `path`.
    """
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
