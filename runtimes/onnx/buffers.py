"""Host memory that ONNX Runtime reads and writes in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort


class Buffer:
    """A host array and an OrtValue on the same memory, of one shape."""

    def __init__(self, array: npt.NDArray[Any]):
        self.array = array
        self.value = ort.OrtValue.ortvalue_from_numpy(array)
        self._parts: list[Buffer] | None = None

    def parts(self) -> list[Buffer]:
        """Return a buffer on the same memory for each index of the first axis; made once."""
        if self._parts is None:
            self._parts = [Buffer(part) for part in self.array]
        return self._parts


class Rows:
    """Memory for the largest call so far; `[n]` is the buffer of its first n rows, made once."""

    def __init__(self, shape: tuple[int, ...], dtype: str, axis: int = 0):
        self.shape, self.dtype, self.axis = shape, dtype, axis
        self.memory = np.empty(0, dtype)
        self.buffers: dict[int, Buffer] = {}

    def __getitem__(self, count: int) -> Buffer:
        buffer = self.buffers.get(count)
        if buffer is not None:
            return buffer
        shape = (*self.shape[: self.axis], count, *self.shape[self.axis :])
        size = int(np.prod(shape))
        if size > self.memory.size:
            self.memory = np.zeros(size, self.dtype)
            self.buffers.clear()
        self.buffers[count] = Buffer(self.memory[:size].reshape(shape))
        return self.buffers[count]
