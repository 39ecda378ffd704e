"""What moves the parameters: AdamW, or Muon for the matrices inside the layers and AdamW for the rest."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from hamburger_edge.models.training.recipe import Recipe

TABLES = ("embed_tokens.weight", "lm_head.weight", "places")  # a row for each token or place


def optimizers(model: nn.Module, groups: list[dict[str, Any]], recipe: Recipe) -> list[Optimizer]:
    """For these groups of parameters, each with the `peak` of its learning rate. Muon moves every entry by a
    fifth of the rate on average, which AdamW comes down to once its gradients are mostly noise."""
    adamw = {"betas": (0.9, 0.95), "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "adamw":
        return [AdamW(groups, **adamw)]
    inner = {id(p) for name, p in model.named_parameters() if _is_map(name, p)}
    matrices, others = (_those(groups, inner, wanted) for wanted in (True, False))
    muon = {"weight_decay": recipe.weight_decay, "adjust_lr_fn": "match_rms_adamw"}
    chosen = (Muon(matrices, **muon) if matrices else None, AdamW(others, **adamw) if others else None)
    return [optimizer for optimizer in chosen if optimizer is not None]


def set_rate(chosen: list[Optimizer], share: float) -> None:
    """Every group at this share of its own peak."""
    for optimizer in chosen:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share


def _is_map(name: str, parameter: Tensor) -> bool:
    return parameter.ndim == 2 and min(parameter.shape) > 1 and not name.endswith(TABLES)


def _those(groups: list[dict[str, Any]], inner: set[int], wanted: bool) -> list[dict[str, Any]]:
    """Of every group the inner matrices (or the others); groups without any are left out."""
    chosen = [[p for p in group["params"] if (id(p) in inner) == wanted] for group in groups]
    return [{**group, "params": those} for group, those in zip(groups, chosen, strict=True) if those]
