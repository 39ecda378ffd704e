"""Low-rank updates of a frozen base: trained separately, folded into its weights at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LoraLinear(nn.Module):
    """A frozen linear layer plus `up @ down`; initially equal to the wrapped layer."""

    down_before: Tensor | None
    up_before: Tensor | None

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        outputs, inputs = layer.weight.shape
        self.down = nn.Parameter(torch.empty(rank, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        self.on = True
        # of the reference base; None: the plain one
        self.register_buffer("down_before", None, persistent=False)
        self.register_buffer("up_before", None, persistent=False)
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        plain: Tensor = self.layer(x)
        down, up = (self.down, self.up) if self.on else (self.down_before, self.up_before)
        if down is None or up is None:
            return plain
        rows = torch.addmm(plain.flatten(0, -2), F.linear(x, down).flatten(0, -2), up.t())
        return rows.view(plain.shape)


@contextmanager
def before_training(module: nn.Module) -> Iterator[None]:
    """Use the layers without updates inside the block, or with those of `remember_lora`."""
    layers = [m for m in module.modules() if isinstance(m, LoraLinear)]
    for layer in layers:
        layer.on = False
    try:
        yield
    finally:
        for layer in layers:
            layer.on = True


def add_lora(module: nn.Module, rank: int) -> list[nn.Parameter]:
    """Wrap every linear layer below `module`; returns the new parameters."""
    added: list[nn.Parameter] = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(parent, LoraLinear):
                wrapped = LoraLinear(child, rank).to(child.weight.device)
                setattr(parent, name, wrapped)
                added += [wrapped.down, wrapped.up]
    return added


def remember_lora(module: nn.Module) -> None:
    """Make the current updates those of the reference base."""
    for layer in module.modules():
        if isinstance(layer, LoraLinear):
            layer.down_before, layer.up_before = layer.down.detach().clone(), layer.up.detach().clone()


@torch.no_grad()
def restore_lora(module: nn.Module, pairs: Mapping[str, Tensor]) -> None:
    """Wrap the layers that `merge_lora` unwrapped, with the updates it returned."""
    for name, down in pairs.items():
        if name.endswith(".weight.lora_a"):
            path = name.removesuffix(".weight.lora_a")
            wrapped = LoraLinear(module.get_submodule(path), len(down))  # type: ignore[arg-type]
            wrapped.down.copy_(down)
            wrapped.up.copy_(pairs[f"{path}.weight.lora_b"])
            parent, _, own = path.rpartition(".")
            setattr(module.get_submodule(parent), own, wrapped)


def lora_pairs(module: nn.Module) -> dict[str, Tensor]:
    """Copy all updates: `<weight>.lora_a` [rank, in] and `<weight>.lora_b` [out, rank], by the unwrapped
    names."""
    pairs: dict[str, Tensor] = {}
    for path, child in module.named_modules():
        if isinstance(child, LoraLinear):
            pairs[f"{path}.weight.lora_a"] = child.down.detach().float().clone()
            pairs[f"{path}.weight.lora_b"] = child.up.detach().float().clone()
    return pairs


@torch.no_grad()
def merge_lora(module: nn.Module) -> dict[str, Tensor]:
    """Fold all updates into the weights, unwrap the layers, and return `lora_pairs`."""
    pairs = lora_pairs(module)
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoraLinear):
                update = child.up.float() @ child.down.float()
                child.layer.weight.copy_(child.layer.weight.float() + update)
                setattr(parent, name, child.layer)
    return pairs
