"""A session's file: a header, arrays, and a hash of both.

    "hamburger-edge session 3\n"
    length of the header       8 bytes, little endian
    header                     JSON; its "arrays" lists name, dtype and shape of each
    arrays                     consecutive, C order, little endian
    sha256 of all the above    32 bytes, detects damage

The reader checks the hash before it parses the header, and allocates no more than the caller's limits. The
hash does not authenticate the author: anyone who can write the file can put any text into the conversation.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import SessionError
from hamburger_edge.loop.backend import Snapshot
from hamburger_edge.support.files import open_regular, write_atomically

VERSION = 3
_FIRST_LINE = b"hamburger-edge session %d\n"
_LENGTH, _HASH = struct.Struct("<Q"), 32
_DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32")


class SessionLimits(NamedTuple):
    """The largest header and the largest arrays of a model's session, in bytes."""

    header: int
    arrays: int


def write(path: Path, header: Mapping[str, Any], arrays: Snapshot, limits: SessionLimits) -> None:
    """Write a session that only the file's owner can read; raise OSError if it cannot be written."""
    described = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": described}).encode()
    if len(text) > limits.header:  # `read` would refuse it
        raise SessionError(f"{path}: {len(text)} bytes of conversation are too many to save: begin another")
    digest = hashlib.sha256()
    with write_atomically(path, private=True) as temporary, open(temporary, "wb") as file:
        parts: list[memoryview | bytes]
        parts = [_FIRST_LINE % VERSION, _LENGTH.pack(len(text)), text, *map(_bytes, arrays.values())]
        for part in parts:
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def read(path: Path, limits: SessionLimits) -> tuple[dict[str, Any], Snapshot]:
    """Return the header and the arrays of an undamaged file."""
    limit = len(_FIRST_LINE) + _LENGTH.size + sum(limits) + _HASH
    with open_regular(path, limit=limit) as file:
        size = os.fstat(file.fileno()).st_size
        _check_first_line(path, file)
        start = file.tell()
        digest = _digest(file, size - _HASH)
        if file.read(_HASH) != digest:
            raise ValueError("its contents differ from their sha256")
        file.seek(start)
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        if length > limits.header:
            raise ValueError(f"a header of {length} bytes")
        header: dict[str, Any] = dict(json.loads(file.read(length)))
        return header, _arrays(file, header.pop("arrays"), size - _HASH - file.tell())


def _check_first_line(path: Path, file: BinaryIO) -> None:
    line = file.read(64)
    match = re.match(rb"hamburger-edge session ([0-9]{1,9})\n", line)
    if match is None and line[:4] != b"PK\3\4":  # a zip file is a session of version 1
        raise SessionError(f"{path}: not a session of this program, or truncated or damaged")
    version = int(match[1]) if match else 1
    if version != VERSION:
        raise SessionError(
            f"{path}: session version {version}, this program reads {VERSION}: begin the conversation anew"
        )
    assert match is not None
    file.seek(match.end())


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the sha256 of the first `size` bytes; the file position is then `size`."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        digest.update(block)
        size -= len(block)
    return digest.digest()


def _arrays(file: BinaryIO, described: Any, size: int) -> Snapshot:
    """Read the arrays. Their sizes must sum to `size` before any array is allocated."""
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, dtype, shape in described:
        if name in shapes or dtype not in _DTYPES or len(shape) > 8:
            raise ValueError("arrays that no session has")
        # arrays of an empty cache have no bytes: one length is 0, the others are unchanged
        if not all(type(length) is int and 0 <= length <= max(size, 1 << 20) for length in shape):
            raise ValueError("arrays of impossible lengths")
        shapes[name] = dtype, tuple(shape)
    if sum(np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in shapes.values()) != size:
        raise ValueError("its arrays do not fill it")
    arrays: Snapshot = {}
    for name, (dtype, shape) in shapes.items():
        arrays[name] = np.empty(shape, dtype)
        if file.readinto(_bytes(arrays[name])) != arrays[name].nbytes:  # type: ignore[attr-defined]
            raise ValueError("it ends in the middle of an array")
    return arrays


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    flat: memoryview = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return flat
