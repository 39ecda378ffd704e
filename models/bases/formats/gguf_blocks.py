"""Weights of llama.cpp's common quantized types as float32, in numpy.

A type stores blocks of a fixed number of weights: scales first, or last in Q6_K. Every operation is rounded
as IEEE 754 says, so that a file gives the same numbers on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
AT_ONCE = 1 << 16  # blocks in flight: they stay in the cache


class Kind(NamedTuple):
    name: str
    weights: int  # of a block
    bytes: int
    decode: Callable[[Bytes], Floats]  # [n, bytes] -> [n, weights]


def _half(blocks: Bytes, at: int) -> Floats:
    """[n, 1]"""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[n, k] -> [n, 2k], all low halves first"""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(blocks: Bytes, at: int) -> Bytes:
    """[n, 32] zeros and sixteens"""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.int8) - np.int8(8))


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (values.astype(np.int8) - np.int8(16))


def _q5_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8)


def _q6_k(blocks: Bytes) -> Floats:
    low, high = blocks[:, :128].reshape(-1, 2, 64), blocks[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([low & 15, low >> 4], axis=2)  # [n, 2, 128]
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    values = low | ((high >> shifts & 3) << 4).reshape(-1, 2, 128)
    centred = (values.astype(np.int8) - np.int8(32)).reshape(-1, 16, 16).astype(np.float32)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return (scales[..., None] * centred).reshape(-1, 256)


# ggml's number of a type
KINDS = {
    0: Kind("F32", 1, 4, _f32),
    1: Kind("F16", 1, 2, _f16),
    2: Kind("Q4_0", 32, 18, _q4_0),
    3: Kind("Q4_1", 32, 20, _q4_1),
    6: Kind("Q5_0", 32, 22, _q5_0),
    7: Kind("Q5_1", 32, 24, _q5_1),
    8: Kind("Q8_0", 32, 34, _q8_0),
    14: Kind("Q6_K", 256, 210, _q6_k),
    30: Kind("BF16", 1, 2, _bf16),
}


def decode(kind: Kind, data: Any, shape: tuple[int, ...]) -> Floats:
    """Decode a tensor of this shape into new memory."""
    blocks = np.frombuffer(data, np.uint8).reshape(-1, kind.bytes)
    values = np.empty((len(blocks), kind.weights), np.float32)
    for start in range(0, len(blocks), AT_ONCE):
        part = np.ascontiguousarray(blocks[start : start + AT_ONCE])
        values[start : start + AT_ONCE] = kind.decode(part)
    return values.reshape(shape)
