"""Writing folders so that a killed process leaves nothing that looks finished."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_OF_FILE_MANAGERS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # come by themselves, and may go


def strangers(folder: Path, ours: set[str]) -> list[str]:
    """What else a folder holds, and replacing it would delete."""
    return sorted({path.name for path in folder.glob("*")} - ours - _OF_FILE_MANAGERS)


def sha256(path: Path, on_read: Callable[[int], None] = lambda count: None) -> str:
    """Hex digest of a file; `on_read` is told how many bytes each step took."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            on_read(len(block))
    return digest.hexdigest()


def flush(folder: Path) -> None:
    """Put all its files on the disk: a name must not outlive a power cut that its contents did not."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())


def publish(partial: Path, folder: Path) -> None:
    """Flush a finished folder to the disk and give it its final name, replacing what was there."""
    flush(partial)
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)  # a folder cannot be renamed onto a non-empty one
    partial.rename(folder)
    if os.name == "posix":  # the rename itself is on disk once the parent is
        handle = os.open(folder.parent, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; a second process waits here. The system frees it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            while True:
                try:
                    msvcrt.locking(
                        file.fileno(), msvcrt.LK_LOCK, 1
                    )  # gives up after ten tries, a second apart
                    break
                except OSError:
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
