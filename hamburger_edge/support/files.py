"""Files: opened only where they are regular ones of a bounded size, written whole or not at all, hashed, and
locked against other processes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO

LITTLE = 1 << 20  # bytes left on a disk that counts as full
TEXT = 1 << 28  # most bytes of a file that is read as a whole: JSON, a recipe, prompts


def open_regular(path: str | PathLike[str], *, most: int = 1 << 46) -> BinaryIO:
    """A regular file of at most `most` bytes, to read; an OSError for all else that may have a path: a pipe
    would wait for its writer, and a device has no end."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # a name that no file can have
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from error
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if found.st_size > most:
            reason = f"{found.st_size} bytes, of which at most {most} are read"
            raise OSError(errno.EFBIG, reason, os.fspath(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | PathLike[str], *, most: int = TEXT) -> bytes:
    """All of such a file."""
    with open_regular(path, most=most) as file:
        return file.read(most)


def check_regular(path: str | PathLike[str]) -> None:
    """Before a library opens it that would wait."""
    open_regular(path).close()


@contextmanager
def write_atomically(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A temporary sibling to write to. When the block ends well it is flushed to the disk and takes the
    name; otherwise it is deleted, and what had the name stays. `private`: for its owner's eyes only."""
    if path.exists() and not path.is_file():  # the place of a device would be taken by a file
        kind = errno.EISDIR if path.is_dir() else errno.EINVAL
        raise OSError(kind, "not a regular file", os.fspath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666))
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # gone already, unless something failed


@contextmanager
def library_writes(path: Path) -> Iterator[None]:
    """Around a library that writes a file, and has errors of its own for a full disk: they become an OSError,
    as from all else that writes."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        full = "No space left" in str(error) or shutil.disk_usage(path.parent).free < LITTLE
        reason = os.strerror(errno.ENOSPC) if full else f"not written ({str(error).splitlines()[0][:200]})"
        raise OSError(errno.ENOSPC if full else errno.EIO, reason, os.fspath(path)) from error


def sha256(path: Path, on_read: Callable[[int], None] = lambda count: None) -> str:
    """Hex digest of a file; `on_read` is told how many bytes each step took."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            on_read(len(block))
    return digest.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, which is there only so long; a second process waits here. The system frees it when
    the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(path, "a+b") as file:
            _lock(file)
            if not _is_at(file, path):  # its holder has deleted it meanwhile: whoever comes now locks another
                continue
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # Windows keeps what is open
                    path.unlink()
            return


def _lock(file: BinaryIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                return
            except OSError:  # it gives up after ten tries, a second apart
                continue
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
