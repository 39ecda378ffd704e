"""Symmetric int8 weights for `DynamicQuantizeMatMul`: one scale per output, in numpy.

    weight [N, K] float32  ->  values int8 [K, N], scales float32 [N];   weight ~ (values * scales).T

Exports and assembly both call this, so their files are equal bit for bit. Every operation is exact, or
rounded by IEEE 754 on every processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

LARGEST = 64  # x86 without VNNI adds two products in 16 bits: 2 * 255 * 64 fits, 2 * 255 * 127 does not
WIDEST = 4160  # columns of a product
SMALLEST_SCALE = 1e-8  # of an output whose weights are all zero
AT_ONCE = 1 << 18  # weights in flight: they stay in the cache

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Origin:
    """Rows of one weight of a model; "draft_vocab" and "others" are those tokens'."""

    weight: str
    rows: Literal["all", "draft_vocab", "others"] = "all"


def quantize_columns(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """The values [K, N] and the scales [N] of a matrix [N, K]."""
    count, width = weight.shape
    values = np.empty((width, count), np.int8)
    scales = np.empty(count, np.float32)
    step = max(1, AT_ONCE // width)
    for start in range(0, count, step):
        rows = np.asarray(weight[start : start + step], np.float32)
        scale = np.maximum(np.abs(rows).max(1) / np.float32(LARGEST), np.float32(SMALLEST_SCALE))
        scales[start : start + step] = scale
        values[:, start : start + step] = np.rint(rows / scale[:, None]).T
    return values, scales


def tile_widths(count: int) -> list[int]:
    """How many columns each product of a matrix [K, count] has. WebAssembly packs columns anew in every call,
    which takes 25 times as long where rows are far apart, or a power of two of bytes."""
    return [min(WIDEST, count - start) for start in range(0, count, WIDEST)]
