"""A sequence's KV cache as llama.cpp saves it, checked before llama.cpp reads it back.

    magic, sequence 0, 1 stream, cells | a cell: position, 1 sequence [, M-RoPE's positions], 0
    V transposed?, layers | a layer's keys: type, bytes of a row, rows | ... | a layer's values | ...

Model, cache type and slot positions determine everything except the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.bundle.manifest import KVLayout
from hamburger_edge.runtimes.llamacpp.library import KV_BYTES, KV_TYPES

_MAGIC = 0xAF143CD8
Bytes = npt.NDArray[np.uint8]


def is_state(
    state: Bytes, positions: npt.NDArray[np.int32], layout: KVLayout, kv_cache_dtype: str, *, gaps: bool
) -> bool:
    """Whether this is the state of slots at these positions with finite numbers. `gaps`: M-RoPE."""
    reader, slots = _StateReader(state), len(positions)
    if not reader.has("<u4", _MAGIC, 0, 1, slots):
        return False
    if not slots:
        return reader.at == state.size
    ones = np.ones_like(positions)
    columns = (
        [positions, ones, positions, positions, -ones, 0 * ones] if gaps else [positions, ones, 0 * ones]
    )
    if not reader.has("<i4", *np.stack(columns, 1).ravel()):
        return False
    weights, size = KV_BYTES[kv_cache_dtype]
    width = layout.kv_heads * layout.head_size
    row = width // weights * size
    transposed = reader.has("<u4", 1, layout.layers)
    if not transposed and not reader.has("<u4", 0, layout.layers):
        return False
    for of_values in (False, True):
        for _ in range(layout.layers):
            described = (size, width) if of_values and transposed else (row, 0)  # the latter: 64 bits
            if not reader.has("<u4", KV_TYPES[kv_cache_dtype], *described) or not reader.finite(
                slots * row, kv_cache_dtype
            ):
                return False
    return reader.at == state.size


class _StateReader:
    def __init__(self, data: Bytes):
        self.data, self.at = data, 0

    def has(self, dtype: str, *expected: Any) -> bool:
        """Whether these numbers come next; if so, advance beyond them."""
        wanted = np.array(expected, dtype).view(np.uint8)
        if not np.array_equal(self.data[self.at : self.at + wanted.size], wanted):
            return False
        self.at += wanted.size
        return True

    def finite(self, size: int, kv_cache_dtype: str) -> bool:
        """Whether this many bytes of finite cache values come next; of quantized blocks the scales count."""
        weights, block = KV_BYTES[kv_cache_dtype]
        part = self.data[self.at : self.at + size]
        if part.size != size:
            return False
        self.at += size
        if weights > 1:
            part = part.reshape(-1, block)[:, :2]
        numbers = np.ascontiguousarray(part).view("<f4" if kv_cache_dtype == "f32" else "<f2")
        return bool(np.isfinite(numbers).all())
