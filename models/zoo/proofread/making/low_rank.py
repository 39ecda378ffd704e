"""Low-rank updates that are folded into their weight at every step.

One product a layer instead of three: on a GPU a model of this size waits for memory, not for arithmetic.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Folded(nn.Module):
    """x @ (weight + up @ down).T, the weight frozen."""

    weight: Tensor

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        outputs, inputs = layer.weight.shape
        self.register_buffer("weight", layer.weight.detach())
        self.down = nn.Parameter(torch.empty(rank, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight + self.up @ self.down)


def add_folded(module: nn.Module, rank: int) -> list[nn.Parameter]:
    """In the place of every linear layer below `module`; the new parameters."""
    added: list[nn.Parameter] = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                folded = Folded(child, rank)
                setattr(parent, name, folded)
                added += [folded.down, folded.up]
    return added


def pairs_of(module: nn.Module) -> dict[str, Tensor]:
    """The updates, by the names that a checkpoint's base_delta.safetensors has."""
    pairs: dict[str, Tensor] = {}
    for path, child in module.named_modules():
        if isinstance(child, Folded):
            pairs[f"{path}.weight.lora_a"] = child.down.detach().float()
            pairs[f"{path}.weight.lora_b"] = child.up.detach().float()
    return pairs
