"""Calibrate the stop head: p(continue) becomes the measured chance that the next micro token is right.

A right token is the plain base's choice. It is measured on conversations used neither in training nor in
judging, merged by judging's rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.training.data.batches import TrainingBatch
from hamburger_edge.models.training.objective import Objective


@dataclass(frozen=True)
class StopReliability:
    """Expected against observed agreement, in bins of p(continue)."""

    expected: list[float]
    observed: list[float]
    counts: list[int]

    @property
    def error(self) -> float:
        """Return the mean distance of the two, weighted by each bin's frequency."""
        total = max(1, sum(self.counts))
        bins = zip(self.expected, self.observed, self.counts, strict=True)
        return sum(n * abs(e - o) for e, o, n in bins) / total


@dataclass(frozen=True)
class StopCalibration:
    """Scale and offset of the stop head, and held-out reliability without and with them."""

    scale: float
    offset: float
    before: StopReliability
    after: StopReliability

    def __str__(self) -> str:
        return (
            f"the stop head is off the observed agreement by {self.after.error:.3f} on average, "
            f"{self.before.error:.3f} before (scale {self.scale:.2f}, offset {self.offset:+.2f})"
        )


@torch.no_grad()
def measure(objective: Objective, batches: Iterable[TrainingBatch]) -> tuple[Tensor, Tensor]:
    """Return stop logits [N] of positions with a next token, and whether the micro token was right [N]."""
    stops, rights = [], []
    for batch in batches:
        stop, right, judged = objective.stops_and_rights(batch)
        stops.append(stop[judged].cpu())
        rights.append(right[judged].cpu())
    return torch.cat(stops).float(), torch.cat(rights).float()


def fit_stop_logits(stops: Tensor, rights: Tensor, steps: int = 50) -> tuple[float, float]:
    """Fit scale and offset of the logits so that 1 - sigmoid best predicts a right token (Newton's method).

    A weak pull towards (1, 0) keeps a few observations from inverting the head.
    """
    x = torch.stack([stops.double(), torch.ones_like(stops, dtype=torch.float64)], dim=1)  # [N, 2]
    ends = 1 - rights.double()
    untouched = torch.tensor([1.0, 0.0], dtype=torch.float64)
    parameters = untouched
    for _ in range(steps):
        p = (x @ parameters).sigmoid()
        gradient = x.T @ (p - ends) + (parameters - untouched)
        curvature = x.T @ (x * (p * (1 - p))[:, None]) + torch.eye(2, dtype=torch.float64)
        update = torch.linalg.solve(curvature, gradient)
        parameters = parameters - update.clamp(-1, 1)
        if update.abs().max() < 1e-9:
            break
    scale, offset = parameters.tolist()
    return max(scale, 0.0), offset  # an inverted head gets no weight


@torch.no_grad()
def apply_to_stop_head(model: Hamburger, scale: float, offset: float) -> None:
    """Fold scale and offset into the stop head's last layer, and into the weight of the evidence."""
    last = model.stop_head[-1]
    assert isinstance(last, nn.Linear)
    last.weight.mul_(scale)
    last.bias.mul_(scale).add_(offset)
    if model.stop_evidence is not None:
        model.stop_evidence.mul_(scale)


def reliability(stops: Tensor, rights: Tensor, bins: int = 10) -> StopReliability:
    goes_on = 1 - stops.sigmoid()
    which = (goes_on * bins).long().clamp(max=bins - 1)
    counts = torch.bincount(which, minlength=bins)
    expected = torch.bincount(which, goes_on.double(), bins) / counts.clamp(min=1)
    observed = torch.bincount(which, rights.double(), bins) / counts.clamp(min=1)
    return StopReliability(expected.tolist(), observed.tolist(), counts.tolist())
