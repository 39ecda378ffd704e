"""Folders of files that are written whole and read whole: on a disk, or in object storage by a URL that
fsspec knows (s3://bucket/data, gs://..., memory://...)."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Any, Protocol

from hamburger_edge.errors import InputError, MissingExtraError, require
from hamburger_edge.support.files import open_regular, sha256, write_atomically


class Folder(Protocol):
    """Its text is its path, or its URL."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all; what had the name is replaced."""

    def sha256(self, name: str) -> str | None:
        """Hex digest of a file; None: there is none."""

    def checked(self, name: str, digest: str) -> bytes | None:
        """The file with this digest; None: there is none."""


def folder_at(where: str | os.PathLike[str] | Folder) -> Folder:
    if isinstance(where, str) and "://" in where:
        return ObjectFolder(where)
    return DiskFolder(Path(where)) if isinstance(where, str | os.PathLike) else where


class DiskFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def read(self, name: str) -> bytes:
        with open_regular(self.path / name) as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with write_atomically(self.path / name) as temporary:
            temporary.write_bytes(data)

    def sha256(self, name: str) -> str | None:
        """Read once, however often a run asks."""
        path = (self.path / name).absolute()
        if not path.is_file():
            return None
        facts = path.stat()
        return _digest(path, facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def checked(self, name: str, digest: str) -> bytes | None:
        return self.read(name) if self.sha256(name) == digest else None


@functools.cache
def _digest(path: Path, inode: int, size: int, modified: int) -> str:
    """A file's sha256, taken again only where the file is not the same any more."""
    return sha256(path)


class ObjectFolder:
    """Objects below a URL. A store puts each of them whole."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        fsspec = require("fsspec", "cluster")
        self.files: Any
        try:
            self.files, self.root = fsspec.core.url_to_fs(self.url)
        except ImportError as error:  # says which package knows such URLs
            raise MissingExtraError(f"{url}: {error}") from error
        except ValueError as error:
            raise InputError(f"{url}: is no folder's URL that fsspec knows ({error})") from error

    def __str__(self) -> str:
        return self.url

    def exists(self, name: str) -> bool:
        return bool(self.files.exists(f"{self.root}/{name}"))

    def read(self, name: str) -> bytes:
        data: bytes = self.files.cat_file(f"{self.root}/{name}")
        return data

    def write(self, name: str, data: bytes) -> None:
        self.files.makedirs(self.root, exist_ok=True)
        self.files.pipe_file(f"{self.root}/{name}", data)

    def sha256(self, name: str) -> str | None:
        return hashlib.sha256(self.read(name)).hexdigest() if self.exists(name) else None

    def checked(self, name: str, digest: str) -> bytes | None:
        """Fetched once, unlike a file that lies beside its reader."""
        data = self.read(name) if self.exists(name) else b""
        return data if hashlib.sha256(data).hexdigest() == digest else None
