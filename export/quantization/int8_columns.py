"""Symmetric int8 weights of integer products: one scale per output, in numpy.

    weight [N, K] float32  ->  values int8 [K, N], scales float32 [N];   weight ~ (values * scales).T

x86 without VNNI adds the products of two neighbouring inputs in 16 bits: 255 * (|a| + |b|) < 2^15. So the
magnitudes of each pair add up to 128 at most.

Exports and assembly both call this, so their files are equal bit for bit. Every operation is exact, or
rounded by IEEE 754 on every processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

LARGEST = 127  # of a pair's magnitudes before they are rounded, which adds at most 1
PAIR = 2
WIDEST = 4160  # columns of a product
SMALLEST_SCALE = 1e-8  # of an output whose weights are all zero
AT_ONCE = 1 << 18  # weights in flight: they stay in the cache

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WeightOrigin:
    """Rows of one weight of a model; "draft_vocab" and "others" are those tokens'."""

    weight: str
    rows: Literal["all", "draft_vocab", "others"] = "all"


Columns = tuple[npt.NDArray[np.int8], Floats]  # values [K, N] and scales [N] of a matrix [N, K]


def quantize_columns(weight: Floats) -> Columns:
    """For a product, which adds pairs of inputs in 16 bits: the magnitudes of a pair fit together."""
    return _quantized(weight, PAIR)


def quantize_table(weight: Floats) -> Columns:
    """For embeddings, whose rows no product adds."""
    return _quantized(weight, 1)


def _quantized(weight: Floats, neighbours: int) -> Columns:
    count, width = weight.shape
    values = np.empty((width, count), np.int8)
    scales = np.empty(count, np.float32)
    step = max(1, AT_ONCE // width)
    for start in range(0, count, step):
        rows = np.asarray(weight[start : start + step], np.float32)
        largest = _together(np.abs(rows), neighbours).max(1)
        scale = np.maximum(largest / np.float32(LARGEST), np.float32(SMALLEST_SCALE))
        scales[start : start + step] = scale
        values[:, start : start + step] = np.rint(rows / scale[:, None]).T
    return values, scales


def _together(magnitudes: Floats, neighbours: int) -> Floats:
    """[N, K] -> [N, K / neighbours, rounded up]"""
    total = magnitudes[:, ::neighbours].copy()
    for offset in range(1, neighbours):
        part = magnitudes[:, offset::neighbours]
        total[:, : part.shape[1]] += part
    return total


def tile_widths(count: int) -> list[int]:
    """How many columns each product of a matrix [K, count] has. WebAssembly packs columns anew in every call,
    which takes 25 times as long where rows are far apart, or a power of two of bytes."""
    return [min(WIDEST, count - start) for start in range(0, count, WIDEST)]
