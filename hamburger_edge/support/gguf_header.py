"""A reader of GGUF headers in pure Python.

"GGUF" version, counts | keys: name, type, value | tensors: name, shape, type, offset | data
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), 32
_SCALARS = "BbHhIif?"  # struct formats of key types 0..7; types 10, 11 and 12 have 64 bits
_FORMATS = {**dict(enumerate(_SCALARS)), 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class StoredTensor:
    shape: tuple[int, ...]  # in numpy's order, rows first
    type: int  # ggml's type number
    offset: int  # from the beginning of the file


@dataclass(frozen=True)
class Header:
    keys: dict[str, Any]
    tensors: dict[str, StoredTensor]
    alignment: int


def read_header(data: Any, *, strings: bool) -> Header:
    """Parse the header at a file's beginning. Without `strings`, an array of strings becomes its length.

    Damage raises ValueError, struct.error, KeyError or OverflowError.
    """
    reader = _Reader(data, strings)
    if reader.take(4) != MAGIC or reader.scalar("I") not in VERSIONS:
        raise ValueError(f"it does not begin with {MAGIC!r}, version {VERSIONS[-1]}")
    tensor_count, key_count = reader.scalar("Q"), reader.scalar("Q")
    keys: dict[str, Any] = {}
    for _ in range(key_count):
        name = reader.string()
        keys[name] = reader.value(reader.scalar("I"))
    entries = [(reader.string(), *reader.tensor()) for _ in range(tensor_count)]
    alignment = keys.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or not 1 <= alignment <= 4096:
        raise ValueError(f"alignment {alignment!r}")
    start = -(-reader.at // alignment) * alignment
    stored = {name: StoredTensor(shape, kind, start + offset) for name, shape, kind, offset in entries}
    return Header(keys, stored, alignment)


class _Reader:
    def __init__(self, data: Any, strings: bool):
        self.data, self.at, self.strings = data, 0, strings

    def take(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise ValueError("it ends in the middle of the header")
        return bytes(self.data[start : self.at])

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self) -> str:
        return self.take(self.scalar("Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_FORMATS[kind])
        element, count = self.scalar("I"), self.scalar("Q")
        if element == _STRING:
            if self.strings:
                return [self.string() for _ in range(count)]
            for _ in range(count):
                self.take(self.scalar("Q"))
            return count
        form = _FORMATS[element]
        return list(struct.unpack(f"<{count}{form}", self.take(count * struct.calcsize("<" + form))))

    def tensor(self) -> tuple[tuple[int, ...], int, int]:
        axes = self.scalar("I")
        if not 1 <= axes <= 4:
            raise ValueError(f"a tensor of {axes} dimensions")
        shape = tuple(self.scalar("Q") for _ in range(axes))[::-1]
        return shape, self.scalar("I"), self.scalar("Q")
