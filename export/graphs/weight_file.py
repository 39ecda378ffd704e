"""One file for the weights of all graphs, which stores shared tensors once.

A tensor whose bytes equal an earlier tensor's, or begin it (a draft vocabulary's head inside the full head),
gets that tensor's offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import onnx_ir as ir
from torch import Tensor

ALIGNMENT = 64
AT_ONCE = 1 << 24  # bytes that are compared
INLINE = 1024  # smaller tensors stay inside the .onnx file, where shape inference can see them


class WeightFile:
    def __init__(self, path: Path):
        self.path = path
        self.file = open(path, "w+b")  # noqa: SIM115 closed by `close`
        self.known: dict[bytes, list[tuple[int, int]]] = {}  # first bytes -> spans (offset, length)

    def place(self, data: memoryview) -> int:
        """Return the offset of these bytes; write them if they are new."""
        if (span := self.find(data)) is not None:
            return span
        self.file.seek(0, 2)
        self.file.write(b"\0" * (-self.file.tell() % ALIGNMENT))
        offset = self.file.tell()
        self.file.write(data)
        self._remember(offset, data)
        return offset

    def place_parts(self, whole: memoryview, lengths: Sequence[int]) -> None:
        """Write a tensor made of others of these lengths, one behind the other: each can be found."""
        offset, start = self.place(whole), 0
        for length in lengths:
            self._remember(offset + start, whole[start : start + length])
            start += length

    def _remember(self, offset: int, data: memoryview) -> None:
        self.known.setdefault(bytes(data[:64]), []).append((offset, len(data)))

    def find(self, data: memoryview) -> int | None:
        """The offset of bytes that are in the file, as a tensor or its beginning."""
        for offset, length in self.known.get(bytes(data[:64]), []):
            if len(data) <= length and self._equals(offset, data):
                return offset
        return None

    @property
    def spans(self) -> list[tuple[int, int]]:
        """(offset, bytes) of all tensors."""
        return [span for spans in self.known.values() for span in spans]

    @property
    def size(self) -> int:
        return self.file.seek(0, 2)

    def _equals(self, offset: int, data: memoryview) -> bool:
        self.file.seek(offset)
        parts = (data[start : start + AT_ONCE] for start in range(0, len(data), AT_ONCE))
        return all(self.file.read(len(part)) == part for part in parts)

    def take(self, model: ir.Model) -> None:
        """Move the large initializers of a graph here.

        Branches keep theirs, which are few: ONNX Runtime does not read them from a file that is a symbolic
        link or has several hard links, and copies of a bundle may be such files.
        """
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.nbytes < INLINE:
                continue
            data = _bytes(tensor)
            offset = self.place(data)
            value.const_value = ir.ExternalTensor(
                self.path.name,
                offset,
                len(data),
                tensor.dtype,
                shape=cast(ir.Shape, tensor.shape),
                name=value.name or "",
                base_dir=self.path.parent,
            )
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def bytes_of(tensor: Tensor) -> memoryview:
    return tensor.detach().contiguous().numpy().data.cast("B")


def _bytes(tensor: ir.TensorProtocol) -> memoryview:
    """Return the bytes as ONNX stores them: 4-bit values two per byte, others as in memory."""
    if tensor.dtype.bitwidth < 8:
        return memoryview(tensor.tobytes())
    return np.ascontiguousarray(tensor.numpy()).data.cast("B")
