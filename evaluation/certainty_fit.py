"""Fit an answer's certainty to the answers of held-out prompts, for `eval --certainty`.

    prompts --every second--> nll, right? ------logistic regression--> coefficients
            --the others----> certainty, right? ---------------------> area, calibration error, answered

Fitting and judging use separate prompts. The regression has a ridge on the standardized feature, which keeps
its coefficients finite if no answer is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hamburger_edge.errors import InputError
from hamburger_edge.loop.certainty import Certainty, feature
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned

FEWEST = 100  # minimum of prompts
RIDGE = 1.0
STEPS = 50  # of Newton's method; it converges in about ten
BINS = 10
SHARES = (1.0, 0.9, 0.8, 0.7, 0.5)  # of answered prompts


def fit_certainty(nlls: Sequence[float], right: Sequence[bool]) -> Certainty:
    """Return the coefficients of a logistic regression by Newton's method."""
    values, y = np.array([feature(nll) for nll in nlls]), np.array(right, np.float64)
    centre, scale = values.mean(), max(values.std(), 1e-6)
    x = np.column_stack([np.ones(len(values)), (centre - values) / scale])  # [answers, 2]
    ridge = RIDGE * np.diag([1e-3, 1])  # the offset is nearly free
    weights = np.zeros(2)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        gradient = x.T @ (y - p) - ridge @ weights
        hessian = (x.T * (p * (1 - p))) @ x + ridge
        weights = weights + np.clip(np.linalg.solve(hessian, gradient), -5, 5)
    slope = max(0.0, weights[1]) / scale  # a likelier answer is never less certain
    return Certainty(offset=float(weights[0] + slope * centre), slope=float(slope))


def area_under_curve(certainties: Sequence[float], right: Sequence[bool]) -> float:
    """Return the probability that a right answer has a higher certainty than a wrong one; ties count half."""
    values, good = np.array(certainties), np.array(right, bool)
    higher = values[good][:, None] - values[~good][None, :]
    return float(((higher > 0) + 0.5 * (higher == 0)).mean()) if higher.size else 0.5


def calibration_error(certainties: Sequence[float], right: Sequence[bool]) -> float:
    """Return the mean over answers of `|mean certainty - share of right answers|` of their bin.

    The ten bins have equal widths.
    """
    values, good = np.array(certainties), np.array(right, np.float64)
    bins = np.minimum((values * BINS).astype(int), BINS - 1)
    gaps = (abs((values[bins == each] - good[bins == each]).sum()) for each in range(BINS))
    return float(sum(gaps) / len(values))


@dataclass(frozen=True)
class Answered:
    """The most certain answers, as many as a share of all."""

    share: float
    least: float  # the lowest certainty among them
    right: float  # share of right answers among them

    @classmethod
    def of(cls, share: float, certainties: Sequence[float], right: Sequence[bool]) -> Answered:
        count = max(1, round(share * len(right)))
        order = np.argsort(-np.array(certainties), kind="stable")[:count]
        return cls(share, certainties[order[-1]], float(np.array(right, np.float64)[order].mean()))


@dataclass(frozen=True)
class CertaintyReport:
    certainty: Certainty
    fitted: int  # prompts
    judged: int  # other prompts
    right: float  # share of right answers among the judged
    area: float
    calibration_error: float
    answered: tuple[Answered, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        """Format for a terminal."""
        return f"{self._summary}\n\n{aligned(self._table)}"

    def markdown(self) -> str:
        return f"{self._summary}\n\n{pipes(self._table)}"

    @property
    def _summary(self) -> str:
        return (
            f"certainty fitted on {self.fitted} prompts, judged on {self.judged} others: area under the "
            f"curve {self.area:.3f}, calibration error {100 * self.calibration_error:.1f} points"
        )

    @property
    def _table(self) -> list[list[str]]:
        rows = ([f"{100 * a.share:.0f}%", f"{a.least:.3f}", f"{100 * a.right:.1f}%"] for a in self.answered)
        return [["answered", "certainty at least", "right"], *rows]


def fit_and_judge(nlls: Sequence[float], right: Sequence[bool]) -> CertaintyReport:
    """Fit on every second answer, judge on the others."""
    if len(right) < FEWEST:
        raise InputError(f"{len(right)} prompts have an answer, {FEWEST} are needed to fit: add some")
    fit = fit_certainty(nlls[::2], right[::2])
    good = right[1::2]
    values = [fit.of(nll) for nll in nlls[1::2]]
    return CertaintyReport(
        certainty=fit,
        fitted=len(right) - len(good),
        judged=len(good),
        right=sum(good) / len(good),
        area=area_under_curve(values, good),
        calibration_error=calibration_error(values, good),
        answered=tuple(Answered.of(share, values, good) for share in SHARES),
    )
