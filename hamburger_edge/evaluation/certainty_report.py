"""How well certainties separate right answers from wrong ones, on prompts that did not fit them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned

ENOUGH = 100  # prompts that fit, and prompts that judge; figures of fewer are noise
BINS = 10
SHARES = (1.0, 0.9, 0.8, 0.7, 0.5)  # of answered prompts
RIGHT = 95.0  # percent; the usual wanted share of right answers


def area_under_curve(certainties: Sequence[float], right: Sequence[bool]) -> float:
    """Return the probability that a right answer has a higher certainty than a wrong one; ties count half."""
    values, good = np.array(certainties), np.array(right, bool)
    higher = values[good][:, None] - values[~good][None, :]
    return float(((higher > 0) + 0.5 * (higher == 0)).mean()) if higher.size else 0.5


@dataclass(frozen=True)
class Bin:
    """The answers whose certainties are in one of ten equal intervals."""

    answers: int
    certainty: float  # mean
    right: float  # share of right answers


def reliability(certainties: Sequence[float], right: Sequence[bool]) -> list[Bin]:
    """Return the bins that hold answers, in order."""
    values, good = np.array(certainties), np.array(right, np.float64)
    numbers = np.minimum((values * BINS).astype(int), BINS - 1)
    members = (numbers == number for number in range(BINS))
    return [
        Bin(int(of.sum()), float(values[of].mean()), float(good[of].mean())) for of in members if of.any()
    ]


def calibration_error(certainties: Sequence[float], right: Sequence[bool]) -> float:
    """Return the mean over answers of `|mean certainty - share of right answers|` of their bin."""
    bins = reliability(certainties, right)
    gaps = (one.answers * abs(one.certainty - one.right) for one in bins)
    return sum(gaps) / len(right)


@dataclass(frozen=True)
class ScoredAnswers:
    """The certainties of answers, and whether each answer is right."""

    certainties: tuple[float, ...]
    right: tuple[bool, ...]

    def threshold(self, share: float) -> float | None:
        """Return the lowest `min_certainty` at which this share of the answers that pass is right.

        It is rounded down to four digits. None: no threshold reaches the share.
        """
        for value in sorted({math.floor(1e4 * certainty) / 1e4 for certainty in self.certainties}):
            if self.above(value)[1] >= share:
                return value
        return None

    def above(self, threshold: float) -> tuple[float, float]:
        """Return the share of answers with at least this certainty, and the share of these that is right."""
        right = [good for value, good in zip(self.certainties, self.right, strict=True) if value >= threshold]
        return len(right) / max(1, len(self.right)), sum(right) / max(1, len(right))


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
    fitted: ScoredAnswers  # answers that fitted the coefficients
    judged: ScoredAnswers  # other answers
    # certainties of answers to off-topic sentences that fitted nothing; 0 for the right answer to such a
    # sentence, if the task has one
    off_topic: tuple[float, ...] = ()

    @property
    def area(self) -> float:
        return area_under_curve(self.judged.certainties, self.judged.right)

    @property
    def calibration_error(self) -> float:
        return calibration_error(self.judged.certainties, self.judged.right)

    @property
    def answered(self) -> list[Answered]:
        return [Answered.of(share, self.judged.certainties, self.judged.right) for share in SHARES]

    def passing(self, threshold: float) -> float:
        """Return the share of off-topic sentences whose answer has this certainty or a higher one."""
        return sum(value >= threshold for value in self.off_topic) / max(1, len(self.off_topic))

    def to_json(self, right: float = RIGHT) -> dict[str, Any]:
        threshold = self.fitted.threshold(right / 100)
        return {
            "certainty": {"offset": self.certainty.offset, "slope": self.certainty.slope},
            "fitted": len(self.fitted.right),
            "judged": len(self.judged.right),
            "right": self.judged.above(0)[1],
            "area": self.area,
            "calibration_error": self.calibration_error,
            "answered": [
                {
                    "share": answered.share,
                    "least": answered.least,
                    "right": answered.right,
                    **({"off_topic": self.passing(answered.least)} if self.off_topic else {}),
                }
                for answered in self.answered
            ],
            "wanted": {"right": right / 100, "min_certainty": threshold},
        }

    def text(self, right: float = RIGHT) -> str:
        """Format for a terminal. `right`: the wanted share of right answers, in percent."""
        return f"{self._noise('warning: ')}{self._summary}\n\n{aligned(self._table)}\n\n{self._wanted(right)}"

    def markdown(self, right: float = RIGHT) -> str:
        return f"{self._noise('Warning: ')}{self._summary}\n\n{pipes(self._table)}\n\n{self._wanted(right)}"

    def _noise(self, warning: str) -> str:
        fitted, judged = len(self.fitted.right), len(self.judged.right)
        if min(fitted, judged) >= ENOUGH:
            return ""
        return (
            f"{warning}{fitted} prompts fit the certainty and {judged} judge it: with fewer than {ENOUGH} of "
            "either its figures are noise, give hundreds\n\n"
        )

    @property
    def _summary(self) -> str:
        off_topic = f" and on {len(self.off_topic)} off-topic sentences" if self.off_topic else ""
        return (
            f"certainty fitted on {len(self.fitted.right)} prompts, judged on {len(self.judged.right)} others"
            f"{off_topic}: area under the curve {self.area:.3f}, calibration error "
            f"{100 * self.calibration_error:.1f} points"
        )

    @property
    def _table(self) -> list[list[str]]:
        head = ["answered", "certainty at least", "right", *(["off-topic passing"] if self.off_topic else [])]
        rows = [head]
        for answered in self.answered:
            row = [f"{100 * answered.share:.0f}%", f"{answered.least:.3f}", f"{100 * answered.right:.1f}%"]
            rows.append(row + ([f"{100 * self.passing(answered.least):.1f}%"] if self.off_topic else []))
        return rows

    def _wanted(self, right: float) -> str:
        threshold = self.fitted.threshold(right / 100)
        if threshold is None:
            return f"no min_certainty gave {right:g}% right answers on the prompts that fitted"
        share, good = self.judged.above(threshold)
        off_topic = f", {100 * self.passing(threshold):.1f}% of off-topic" if self.off_topic else ""
        return (
            f"for {right:g}% right answers: min_certainty {threshold:g}, chosen on the prompts that fitted; "
            f"{100 * share:.1f}% of the others pass{off_topic}, {100 * good:.1f}% of them right"
        )
