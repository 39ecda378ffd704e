"""Optimizers: AdamW, or Muon for the matrices inside the layers and AdamW for the rest."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from hamburger_edge.models.training.speed import faster_type
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.models.training.updates.muon import StackedMuon

TABLES = ("embed_tokens.weight", "lm_head.weight", "places")  # a row per token, or per position in a group


def make_optimizers(model: nn.Module, groups: list[dict[str, Any]], recipe: Recipe) -> list[Optimizer]:
    """Make optimizers for these groups of parameters, each with the `peak` of its learning rate.

    Muon changes an entry by a fifth of the rate on average, like AdamW once its gradients are mostly noise.
    """
    betas, decay = (0.9, 0.95), recipe.weight_decay
    if recipe.optimizer == "adamw":
        return [AdamW(groups, betas=betas, weight_decay=decay, fused=True)]
    inner = {id(p) for name, p in model.named_parameters() if _is_map(name, p)}
    matrices, others = (_those(groups, inner, wanted) for wanted in (True, False))
    chosen: list[Optimizer] = []
    if matrices:
        dtype = faster_type(matrices[0]["params"][0].device.type)
        settings = {"weight_decay": decay, "adjust_lr_fn": "match_rms_adamw"}
        chosen.append(StackedMuon(matrices, dtype, **settings))
    if others:
        chosen.append(AdamW(others, betas=betas, weight_decay=decay, fused=True))
    return chosen


def schedule(step: int, steps: int, warmup: float, final: float) -> float:
    """Linear warm-up, then cosine down to the share `final` of the peak."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    wave = math.cos(math.pi * (step - rise) / max(1, steps - rise))  # from 1 to -1
    return (1 + final) / 2 + (1 - final) / 2 * wave


def set_rate(chosen: list[Optimizer], share: float) -> None:
    """Set every group's rate to this share of its peak."""
    for optimizer in chosen:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share


def _is_map(name: str, parameter: Tensor) -> bool:
    return parameter.ndim == 2 and min(parameter.shape) > 1 and not name.endswith(TABLES)


def _those(groups: list[dict[str, Any]], inner: set[int], wanted: bool) -> list[dict[str, Any]]:
    """Return every group's inner matrices (or the others), without empty groups."""
    chosen = [[p for p in group["params"] if (id(p) in inner) == wanted] for group in groups]
    return [{**group, "params": those} for group, those in zip(groups, chosen, strict=True) if those]
