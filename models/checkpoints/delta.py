"""A checkpoint's changes to the base's weights: low-rank pairs and full differences.

<weight>.lora_a [r, in], <weight>.lora_b [out, r]    weight += lora_b @ lora_a, already scaled
<weight>.delta, of the weight's shape                weight += delta
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.weights import Shapes


def check_delta(delta: Mapping[str, Tensor], weights: Shapes, source: object) -> None:
    """Check that every tensor changes an existing weight, fits it, has its partner and is finite."""
    for name, tensor in delta.items():
        weight, _, kind = name.rpartition(".")
        if weight not in weights or kind not in ("lora_a", "lora_b", "delta"):
            raise CheckpointError(f"{source}: unknown tensor {name}: it changes no weight of this base")
        if not torch.isfinite(tensor).all():
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
        if tuple(tensor.shape) != expected:
            raise CheckpointError(
                f"{source}: tensor {name} has shape {list(tensor.shape)}, expected {list(expected)}"
            )


def add_delta(state: dict[str, Tensor], delta: Mapping[str, Tensor], source: object) -> None:
    """Add the changes, in place except for weights of 16 bits."""
    check_delta(delta, {name: tuple(tensor.shape) for name, tensor in state.items()}, source)
    for name, tensor in delta.items():
        weight, _, kind = name.rpartition(".")
        if kind == "delta":
            state[weight] = state[weight].float().add_(tensor)
        elif kind == "lora_b":
            state[weight] = state[weight].float().add_(tensor @ delta[f"{weight}.lora_a"])
