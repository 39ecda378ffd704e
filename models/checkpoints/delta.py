"""A checkpoint's changes to the base's weights: low-rank pairs and full differences.

<weight>.lora_a [r, in], <weight>.lora_b [out, r]    weight += lora_b @ lora_a, already scaled
<weight>.delta, of the weight's shape                weight += delta

The arithmetic is numpy's, so that reading a checkpoint with PyTorch and assembling it without give the same
numbers bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("lora_a", "lora_b", "delta")
ROWS_AT_ONCE = 4096

Floats = npt.NDArray[np.float32]


def check_delta(delta: Mapping[str, Any], weights: Mapping[str, tuple[int, ...]], source: object) -> None:
    """Every array (or tensor) changes a weight that exists, fits it, has its partner and is finite."""
    for name, array in delta.items():
        weight, _, kind = name.rpartition(".")
        if weight not in weights or kind not in KINDS:
            raise CheckpointError(f"{source}: unknown tensor {name}: it changes no weight of this base")
        if not np.isfinite(np.asarray(array)).all():
            raise CheckpointError(f"{source}: tensor {name} holds NaN or infinity: damaged, get it again")
        if kind == "delta":
            expected = weights[weight]
        else:
            partner = f"{weight}.lora_{'b' if kind == 'lora_a' else 'a'}"
            if partner not in delta:
                raise CheckpointError(f"{source}: missing tensor {partner}, the partner of {name}")
            rank = delta[f"{weight}.lora_a"].shape[0]
            rows, columns = weights[weight] if len(weights[weight]) == 2 else (0, 0)
            expected = (rank, columns) if kind == "lora_a" else (rows, rank)
        if tuple(array.shape) != expected:
            raise CheckpointError(
                f"{source}: tensor {name} has shape {list(array.shape)}, expected {list(expected)}"
            )


def change(weight: Floats, name: str, delta: Mapping[str, Any]) -> None:
    """Add to this weight, in place, what the delta has for it."""
    if (difference := delta.get(f"{name}.delta")) is not None:
        weight += np.asarray(difference)
    if (right := delta.get(f"{name}.lora_a")) is None:
        return
    digits = (53 - len(right).bit_length()) // 2  # so that a sum of as many products fits a float64
    right, unit = _whole(np.asarray(right), digits)
    left, other = _whole(np.asarray(delta[f"{name}.lora_b"]), digits)
    for start in range(0, len(weight), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        weight[rows] += (left[rows] @ right) * (unit * other)


def _whole(factor: Floats, digits: int) -> tuple[npt.NDArray[np.float64], float]:
    """A factor as whole numbers of so many bits, and their unit, a power of two. Sums of products of such
    numbers are exact in float64, so they are the same in whatever order a processor's library adds them."""
    largest = float(np.abs(factor).max(initial=0.0))
    unit = 2.0 ** float(np.frexp(largest)[1] - digits)
    return np.rint(factor.astype(np.float64) / unit), unit


def add_delta(state: dict[str, Tensor], delta: Mapping[str, Any], source: object) -> None:
    """Change PyTorch's tensors in place; weights of 16 bits are replaced."""
    check_delta(delta, {name: tuple(tensor.shape) for name, tensor in state.items()}, source)
    for name in {key.rpartition(".")[0]: None for key in delta}:
        state[name] = state[name].detach().float()
        change(state[name].numpy(), name, delta)
