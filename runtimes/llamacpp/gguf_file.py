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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.bundle.manifest import GGUFEntry
from hamburger_edge.errors import BundleError
from hamburger_edge.loop.backend import Floats
from hamburger_edge.support.files import open_regular
from hamburger_edge.support.gguf_header import StoredTensor, read_header

# ggml's tensor type -> its name, weights in a block, bytes of a block
_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
_Q8_0 = np.dtype([("scale", "<f2"), ("values", "i1", (32,))])
_BY_ROW: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "Q8_0": _Q8_0}


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
        try:
            self._read(header)
        except (struct.error, UnicodeDecodeError, KeyError, ValueError, OverflowError) as error:
            raise BundleError(
                f"{path}: not a GGUF file of this program ({error}): export it again"
            ) from error

    def _read(self, data: bytes) -> None:
        header = read_header(data, strings=False)
        for name, tensor in header.tensors.items():
            if (
                tensor.shape[-1] % _TYPES[tensor.type][1]
                or tensor.offset % header.alignment
                or tensor.offset + _size(tensor) > len(self.memory)
            ):
                raise ValueError(f"tensor {name} lies outside the file")
        self.keys, self.tensors = header.keys, header.tensors

    def need(self, key: str, kind: type = int) -> Any:
        value = self.keys.get(key)
        if not isinstance(value, kind):
            raise BundleError(f"{self.path}: key {key} is missing: export the bundle again")
        return value

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Check that each key has the value that the manifest implies."""
        for key, expected in facts.items():
            stored = self.keys.get(key)
            if stored != expected:
                raise BundleError(
                    f"{self.path}: {key} is {stored!r}, but the manifest implies {expected!r}: "
                    "these are not files of one export; export the bundle again"
                )

    def shaped(self, name: str, *shape: int) -> StoredTensor:
        tensor = self.tensors.get(name)
        if tensor is None or tensor.shape != shape:
            shown = "missing" if tensor is None else f"of shape {list(tensor.shape)}"
            raise BundleError(
                f"{self.path}: tensor {name} is {shown}, expected {list(shape)}: export the bundle again"
            )
        return tensor

    def array(self, name: str, *shape: int) -> Floats:
        """Return a copy of a small tensor as float32."""
        return Table(self, self.shaped(name, *shape))[...].reshape(shape)


def _size(tensor: StoredTensor) -> int:
    """Return a tensor's bytes."""
    _, weights, size = _TYPES[tensor.type]
    return math.prod(tensor.shape) // weights * size


class Table:
    """Rows of a matrix in the file, decoded on access."""

    def __init__(self, file: GGUF, tensor: StoredTensor):
        kind = _TYPES[tensor.type][0]
        if kind not in _BY_ROW:
            raise BundleError(f"{file.path}: {kind} cannot be read row by row: export the bundle again")
        raw = np.frombuffer(file.memory, np.uint8, _size(tensor), tensor.offset)
        self.width = tensor.shape[-1]
        self.stored: npt.NDArray[Any] = raw.view(_BY_ROW[kind]).reshape(*tensor.shape[:-1], -1)

    def __getitem__(self, rows: Any) -> Floats:
        """float32 [..., width]"""
        stored = self.stored[rows]
        if stored.dtype != _Q8_0:
            return np.array(stored, np.float32)
        values: Floats = stored["values"] * stored["scale"][..., None].astype(np.float32)
        return values.reshape(*stored.shape[:-1], self.width)
