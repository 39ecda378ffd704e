"""File operations: bounded reads of regular files, atomic writes, hashes, locks between processes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO

LITTLE = 1 << 20  # a disk with fewer free bytes counts as full
TEXT = 1 << 28  # size limit, in bytes, of a file that is read as a whole: JSON, a recipe, prompts

DRAFT_INDEX = "draft_index.bin"  # in checkpoints and bundles: see drafts/draft_index.py

_TERMS = re.compile(r"(LICENSE|NOTICE)([-.][\w.-]+)?|TERMS\.html")


def is_terms(name: str) -> bool:
    """Whether a file of this name beside weights has the terms of a base."""
    return _TERMS.fullmatch(name) is not None


def open_regular(path: str | PathLike[str], *, limit: int = 1 << 46) -> BinaryIO:
    """Open a regular file of at most `most` bytes for reading; raise OSError for anything else.

    Opening a pipe would wait for its writer, and a device has no end.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # an invalid file name
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from error
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if status.st_size > limit:
            reason = f"{status.st_size} bytes, of which at most {limit} are read"
            raise OSError(errno.EFBIG, reason, os.fspath(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | PathLike[str], *, limit: int = TEXT) -> bytes:
    """Return the contents of a regular file of at most `most` bytes."""
    with open_regular(path, limit=limit) as file:
        return file.read(limit)


def check_regular(path: str | PathLike[str]) -> None:
    """Raise OSError unless this is a regular file, before a library opens it and blocks on a pipe."""
    open_regular(path).close()


@contextmanager
def write_atomically(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write to.

    After the block the file is flushed to the disk and renamed to `path`. If the block fails, the temporary
    file is deleted and an existing file at `path` stays. `private`: only the owner can read the file.
    """
    if path.exists() and not path.is_file():  # the rename would replace a device by a file
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
        temporary.unlink(missing_ok=True)  # exists only after a failure


@contextmanager
def library_writes(path: Path) -> Iterator[None]:
    """Convert the errors of a library that writes a file to OSError, also its error for a full disk."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        full = "No space left" in str(error) or shutil.disk_usage(path.parent).free < LITTLE
        reason = os.strerror(errno.ENOSPC) if full else f"not written ({str(error).splitlines()[0][:200]})"
        raise OSError(errno.ENOSPC if full else errno.EIO, reason, os.fspath(path)) from error


def sha256(path: Path, on_read: Callable[[int], None] = lambda count: None) -> str:
    """Return the hex digest of a file; `on_read` is called with the byte count of each block."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            on_read(len(block))
    return digest.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file during the block; a second process waits.

    The file is deleted afterwards. The system releases the lock if the holder dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(path, "a+b") as file:
            _lock(file)
            if not _is_at(file, path):  # the last holder deleted it, so others lock a new file
                continue
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # Windows does not delete open files
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
            except OSError:  # msvcrt stops after ten tries, one second apart
                continue
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
