"""The cache folder for downloads, built files and locks; its contents can be made again.

<home>/bases/<name>     fetched bases
<home>/bundles/<name>   bundles of built-in models and of checkpoints with an assembly
<home>/costs/<name>     measured costs of drafts: see runtimes/onnx/machine_costs.py
<home>/peers/<name>     `bench --peers`: the files of other programs
<home>/shapes/<name>    `bench --shape`: bundles with random weights
<home>/locks            lock files for work outside the cache folder

Hidden entries are unfinished: a process is making them, or it was killed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from hamburger_edge.errors import InputError
from hamburger_edge.support.files import locked

KINDS = ("bases", "bundles", "costs", "peers", "shapes")  # folders of entries


class CacheEntry(NamedTuple):
    name: str  # "bundles/tiny-0a1b2c3d4e5f"
    bytes: int


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


def cache_entries() -> list[CacheEntry]:
    """Return the entries of the cache folder by name."""
    home = cache_folder()
    paths = [
        path
        for kind in KINDS
        if (home / kind).is_dir()
        for path in sorted((home / kind).iterdir())
        if path.suffix != ".lock"
    ]
    return [CacheEntry(path.relative_to(home).as_posix(), _size(path)) for path in paths]


def clear_cache(name: str | None = None) -> list[CacheEntry]:
    """Delete the entry of this name, or all of this kind ("bundles"); without a name, all. Return them."""
    home, entries = cache_folder(), cache_entries()
    cleared = [entry for entry in entries if name in (None, entry.name, entry.name.partition("/")[0])]
    if not cleared and name is not None:
        known = ", ".join(entry.name for entry in entries) or "none"
        raise InputError(f"{name!r} is not in the cache folder {home}: name one of its entries ({known})")
    for entry in cleared:
        path = home / entry.name
        with locked(entry_lock(path)):  # another process may be making it
            _delete(path)
    return cleared


def entry_lock(path: Path) -> Path:
    """Return the file to lock while an entry is made, or one of its hidden folders is deleted."""
    name = path.name
    if name.startswith(".") and name.endswith(".partial"):  # .NAME.partial or .NAME.0a1b2c3d.partial
        name = re.sub(r"(\.[0-9a-f]{8})?\.partial", "", name[1:])
    return path.with_name(f".{name}.lock")


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir() or file.is_symlink())


def _delete(path: Path) -> None:
    """Delete an entry. A folder is renamed first: a killed process never leaves a part under its name."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    hidden = path
    if not path.name.startswith("."):
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        path.rename(hidden)
    shutil.rmtree(hidden)


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
