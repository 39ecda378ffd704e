"""A stage ends when held-out text is read no better for a while, with the weights that read it best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hamburger_edge.models.training.updates.processes import like


class BestWeights:
    """Copies of the parameters as they were at the best look so far; `patience` 0 keeps none."""

    def __init__(self, parameters: list[Tensor], patience: int):
        self.parameters, self.patience = parameters, patience
        self.loss, self.looks = math.inf, 0  # the best, and looks since then
        self.best = list[Tensor]()

    def look(self, loss: float) -> bool:
        """Whether there were so many looks in a row without a better loss that the stage should end."""
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
