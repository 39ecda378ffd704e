"""Averaging of weights: over the last steps of a stage, and over the checkpoints that a run continues.

High learning rates circle around an optimum. The mean of the visited points is closer to it than each of
them, so it reads and predicts better.
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
    """The running mean of float32 parameters, updated after every step from `begins` on."""

    def __init__(self, parameters: list[Tensor], begins: int):
        self.parameters, self.begins = parameters, begins
        self.count, self.means = 0, list[Tensor]()

    @torch.no_grad()
    def add(self, step: int) -> None:
        """Update the mean after step number `step`, counted from 0."""
        if step < self.begins:
            return
        self.count += 1
        if self.count == 1:
            self.means = [parameter.detach().clone() for parameter in self.parameters]
        for mean, parameter in zip(self.means, self.parameters, strict=True):
            mean.lerp_(parameter.detach(), 1 / self.count)

    @torch.no_grad()
    def exchange(self) -> None:
        """Exchange parameters and their means, if there are means."""
        for mean, parameter in zip(self.means, self.parameters, strict=False):
            here = parameter.detach().clone()
            parameter.copy_(mean)
            mean.copy_(here)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the means as parameters inside the block."""
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
    """Return the mean of several models' tensors; integer tensors must be equal."""
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
