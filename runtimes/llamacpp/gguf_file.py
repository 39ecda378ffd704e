"""Read GGUF files with numpy: the whole header is checked, tensors are views of the file.

Only files of this program are supported. The check comes first because llama.cpp may end the process over a
damaged header.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.bundle.manifest import GGUFEntry
from hamburger_edge.errors import BundleError
from hamburger_edge.loop.backend import Floats
from hamburger_edge.support.files import open_regular
from hamburger_edge.support.gguf_header import read_header

# tensor type -> weights in a block, bytes of a block
BLOCKS = {"F32": (1, 4), "F16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34)}
_TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 8: "Q8_0"}
_Q8_0 = np.dtype([("scale", "<f2"), ("values", "i1", (32,))])


@dataclass(frozen=True)
class TensorEntry:
    shape: tuple[int, ...]  # as numpy has it: rows first
    type: str  # a key of BLOCKS
    offset: int  # in the file

    @property
    def bytes(self) -> int:
        weights, size = BLOCKS[self.type]
        return math.prod(self.shape) // weights * size


class GGUF:
    """One open file. `keys` holds scalars, strings, numeric arrays, and the lengths of string arrays."""

    def __init__(self, path: Path, entry: GGUFEntry):
        self.path = path
        try:
            with open_regular(path) as file:
                self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise BundleError(f"{path}: cannot be read ({error}): copy the bundle again") from error
        header = self.memory[: entry.header_bytes]
        if hashlib.sha256(header).hexdigest() != entry.header_sha256:
            raise BundleError(f"{path}: its header differs from the manifest's: copy the bundle again")
        self.keys: dict[str, Any] = {}
        self.tensors: dict[str, TensorEntry] = {}
        try:
            self._read(header)
        except (struct.error, UnicodeDecodeError, KeyError, ValueError, OverflowError) as error:
            raise BundleError(
                f"{path}: not a GGUF file of this program ({error}): export it again"
            ) from error

    def _read(self, data: bytes) -> None:
        header = read_header(data, strings=False)
        self.keys.update(header.keys)
        for name, stored in header.tensors.items():
            entry = TensorEntry(stored.shape, _TYPES[stored.type], stored.offset)
            if (
                entry.shape[-1] % BLOCKS[entry.type][0]
                or entry.offset % header.alignment
                or entry.offset + entry.bytes > len(self.memory)
            ):
                raise ValueError(f"tensor {name} lies outside the file")
            self.tensors[name] = entry

    def need(self, key: str, kind: type = int) -> Any:
        value = self.keys.get(key)
        if not isinstance(value, kind):
            raise BundleError(f"{self.path}: key {key} is missing: export the bundle again")
        return value

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Check that each key has the value that the manifest implies."""
        for key, expected in facts.items():
            found = self.keys.get(key)
            if found != expected:
                raise BundleError(
                    f"{self.path}: {key} is {found!r}, but the manifest implies {expected!r}: "
                    "these are not files of one export; export the bundle again"
                )

    def shaped(self, name: str, *shape: int) -> TensorEntry:
        entry = self.tensors.get(name)
        if entry is None or entry.shape != shape:
            found = "missing" if entry is None else f"of shape {list(entry.shape)}"
            raise BundleError(
                f"{self.path}: tensor {name} is {found}, expected {list(shape)}: export the bundle again"
            )
        return entry

    def array(self, name: str, *shape: int) -> Floats:
        """Return a copy of a small tensor as float32."""
        entry = self.shaped(name, *shape)
        return Table(self, entry)[...].reshape(shape)


class Table:
    """Rows of a matrix in the file, decoded on access."""

    def __init__(self, file: GGUF, entry: TensorEntry):
        kinds: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "Q8_0": _Q8_0}
        if entry.type not in kinds:
            raise BundleError(f"{file.path}: {entry.type} cannot be read row by row: export the bundle again")
        raw = np.frombuffer(file.memory, np.uint8, entry.bytes, entry.offset)
        self.width = entry.shape[-1]
        self.stored: npt.NDArray[Any] = raw.view(kinds[entry.type]).reshape(*entry.shape[:-1], -1)

    def __getitem__(self, rows: Any) -> Floats:
        """float32 [..., width]"""
        found = self.stored[rows]
        if found.dtype != _Q8_0:
            return np.array(found, np.float32)
        values: Floats = found["values"] * found["scale"][..., None].astype(np.float32)
        return values.reshape(*found.shape[:-1], self.width)
