"""Atomic writing of folders: a killed process leaves no partial folder under the final name.

A folder is made under a temporary name beside its place, flushed to the disk, and renamed in one step.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from hamburger_edge.support.files import locked

_OF_FILE_MANAGERS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # safe to delete


def unexpected_files(folder: Path, ours: set[str]) -> list[str]:
    """Return the names in a folder that are not in `ours`, and that replacing the folder would delete."""
    return sorted({path.name for path in folder.glob("*")} - ours - _OF_FILE_MANAGERS)


def publish(partial: Path, folder: Path) -> None:
    """Rename a finished folder to its final name; an existing folder of that name is deleted.

    If the system can swap two names, the name always refers to the old or the new folder. Otherwise the
    name does not exist for a moment.
    """
    _flush(partial)
    if not folder.exists():
        partial.rename(folder)
    elif _swap(partial, folder):
        shutil.rmtree(partial, ignore_errors=True)  # `partial` is now the old folder
    else:
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)  # a folder cannot be renamed onto a non-empty one
        partial.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    if os.name == "posix":  # flushing the parent folder makes the rename durable
        handle = os.open(folder.parent, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def clear_leftovers(folder: Path) -> None:
    """Delete the temporary folders of killed processes beside this folder; the caller holds its lock."""
    name = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}\.partial")
    for path in folder.parent.iterdir() if folder.parent.is_dir() else ():
        if name.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Flush all files to the disk, so that a power cut cannot keep the name and lose the contents."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def _swap(first: Path, second: Path) -> bool:
    """Swap two names; return False if the system or the file system does not support it."""
    if os.name != "posix":
        return False
    library = ctypes.CDLL(ctypes.util.find_library("c") or None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE on Linux and RENAME_SWAP on macOS
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        return bool(library.renameat2(here, names[0], here, names[1], exchange) == 0)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return bool(library.renamex_np(*names, exchange) == 0)
    return False


def copy_folder(source: Path, folder: Path) -> Path:
    """Copy a folder to its final name, whole or not at all; an existing folder of that name is deleted."""
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
    try:
        shutil.copytree(source, partial)
        publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`; if it does not exist, `make` fills a temporary folder, which is then renamed.

    A lock file admits one process at a time.
    """
    with locked(folder.with_name(f".{folder.name}.lock")):
        if not folder.exists():
            clear_leftovers(folder)
            partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
            try:
                partial.mkdir(parents=True)
                make(partial)
                publish(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder
