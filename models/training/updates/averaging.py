"""Checkpoint averaging: over the last steps of a stage, and of the checkpoints that a run goes on from.

High learning rates find more and settle less. The mean of where they have been lies closer to the middle of
what they circle than any one of those points, so it reads and predicts better than each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.training.updates.processes import like


class WeightMean:
    """The running mean of parameters, taken after every step from `begins` on; float32, as they are."""

    def __init__(self, parameters: list[Tensor], begins: int):
        self.parameters, self.begins = parameters, begins
        self.count, self.means = 0, list[Tensor]()

    @torch.no_grad()
    def add(self, step: int) -> None:
        """After step number `step`, counted from 0."""
        if step < self.begins:
            return
        self.count += 1
        if self.count == 1:
            self.means = [parameter.detach().clone() for parameter in self.parameters]
        for mean, parameter in zip(self.means, self.parameters, strict=True):
            mean.lerp_(parameter.detach(), 1 / self.count)

    @torch.no_grad()
    def exchange(self) -> None:
        """Parameters and their means are exchanged, if there are means yet."""
        for mean, parameter in zip(self.means, self.parameters, strict=False):
            here = parameter.detach().clone()
            parameter.copy_(mean)
            mean.copy_(here)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The parameters are their means for a while."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "means": self.means}

    def load(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]
        pairs = zip(state["means"], self.parameters, strict=False)
        self.means = [like(mean, parameter) for mean, parameter in pairs]


def mean_state(states: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' tensors, which agree in those that are no fractions."""
    total: dict[str, Tensor] = {}
    for count, state in enumerate(states, 1):
        if count == 1:
            total = {name: tensor.clone() for name, tensor in state.items()}
            continue
        for name, tensor in total.items():
            if tensor.is_floating_point():
                tensor.lerp_(state[name], 1 / count)
            elif not torch.equal(tensor, state[name]):
                raise ConfigError(f"{name} differs between the checkpoints that are to be averaged")
    return total
