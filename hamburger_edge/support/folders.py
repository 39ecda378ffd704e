"""Folders written so that a killed process leaves nothing that looks finished.

A folder is made under another name beside its place, flushed to the disk, and takes its name in one step.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import sys
from pathlib import Path

_OF_FILE_MANAGERS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # come by themselves, and may go


def unexpected_files(folder: Path, ours: set[str]) -> list[str]:
    """What else a folder holds, and replacing it would delete."""
    return sorted({path.name for path in folder.glob("*")} - ours - _OF_FILE_MANAGERS)


def publish(partial: Path, folder: Path) -> None:
    """Give a finished folder its final name; what had that name is deleted.

    At every moment the name stands for the old folder or for the new one, where the system can swap two
    names; elsewhere there is an instant with neither.
    """
    _flush(partial)
    if not folder.exists():
        partial.rename(folder)
    elif _swap(partial, folder):
        shutil.rmtree(partial, ignore_errors=True)  # now the old one
    else:
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)  # a folder cannot be renamed onto a non-empty one
        partial.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    if os.name == "posix":  # the rename itself is on disk once the parent is
        handle = os.open(folder.parent, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _flush(folder: Path) -> None:
    """Put all its files on the disk: a name must not outlive a power cut that its contents did not."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def _swap(first: Path, second: Path) -> bool:
    """Exchange two names; False where this system or file system has no such call."""
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
