"""How fast a training is, beside what its machine can multiply."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import nn

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.training.training_recipe import Recipe, Stage

WIDTH, REPEATS = 1024, 5


@lru_cache
def product_rate(kind: str, dtype: torch.dtype) -> float:
    """Operations a second of a large product of matrices on this kind of device, the best of a few."""
    left, right = (torch.ones(WIDTH, WIDTH, dtype=dtype, device=kind) for _ in range(2))
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        (left @ right)[0, 0].item()  # which waits for a GPU
        best = min(best, time.perf_counter() - begin)
    return 2 * WIDTH**3 / best


def precision_of(recipe: Recipe, kind: str) -> Literal["bf16", "fp32"]:
    """Return the recipe's precision; for `auto` bf16 where the device multiplies it faster than 32 bits."""
    if recipe.precision != "auto":
        return recipe.precision
    return "bf16" if faster_type(kind) == torch.bfloat16 else "fp32"


def faster_type(kind: str) -> torch.dtype:
    """Return the number type that this kind of device multiplies faster: 16 or 32 bits."""
    return max((torch.bfloat16, torch.float32), key=lambda dtype: product_rate(kind, dtype))


def autocast(recipe: Recipe, kind: str) -> AbstractContextManager[Any]:
    """Return the context in which a training by this recipe multiplies."""
    exact = precision_of(recipe, kind) == "fp32"
    return nullcontext() if exact else torch.autocast(kind, dtype=torch.bfloat16)


def rounds_base(recipe: Recipe, kind: str) -> bool:
    """Whether the base may have 16 bits throughout: no stage trains it in full."""
    return precision_of(recipe, kind) == "bf16" and 0 not in recipe.base_ranks


def base_work(model: Hamburger, stage: Stage, slots: int, scored: float) -> float:
    """Operations of the base's products in one step: `slots` go through its layers, the head scores `scored`
    of them. Attention and the graft are left out."""
    weights = [m.weight for m in model.base.modules() if isinstance(m, nn.Linear)]
    frozen = sum(weight.numel() for weight in weights)
    learned = sum(p.numel() for p in model.base.layers.parameters() if p.requires_grad and p.ndim == 2)
    backward = 1 if {"base", "embedder"} & set(stage.learns) else 0
    low_rank = learned if stage.lora_rank else 0  # beside the weights, not among them
    layers = frozen + low_rank + backward * (frozen + low_rank + learned)
    return 2.0 * (slots * layers + scored * model.base.head_weight.numel() * (1 + backward))
