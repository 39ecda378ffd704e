"""End a stage when its loss on unseen text stops improving, with the best weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hamburger_edge.models.training.updates.processes import like


class BestWeights:
    """Copies of the parameters at the best judgement so far; `patience` 0 keeps none."""

    def __init__(self, parameters: list[Tensor], patience: int):
        self.parameters, self.patience = parameters, patience
        self.loss, self.looks = math.inf, 0  # the best, and judgements since then
        self.best = list[Tensor]()

    def look(self, loss: float) -> bool:
        """Record a judgement; True if `patience` judgements in a row had no better loss."""
        if not self.patience:
            return False
        self.looks += 1
        if loss < self.loss:
            self.loss, self.looks = loss, 0
            self.best = [parameter.detach().clone() for parameter in self.parameters]
        return self.looks >= self.patience

    @torch.no_grad()
    def restore(self) -> None:
        for best, parameter in zip(self.best, self.parameters, strict=False):
            parameter.copy_(best)

    def state(self) -> dict[str, Any]:
        return {"loss": self.loss, "looks": self.looks, "best": self.best}

    def load(self, state: Mapping[str, Any]) -> None:
        self.loss, self.looks = state["loss"], state["looks"]
        pairs = zip(state["best"], self.parameters, strict=False)
        self.best = [like(best, parameter) for best, parameter in pairs]
