"""Cutting an answer into groups.

The paper's rule uses the base's entropies: a token that was easy for the base joins the group before it.
Random cuts teach every length. With both, a token outside the draft vocabulary always begins a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Sizes = list[int]


@dataclass(frozen=True)
class EntropyRule:
    """Token i joins if its entropy (nats) is below `low`, or `ratio` times the group's highest so far."""

    low: float = 0.05
    ratio: float = 0.3


def cut_by_entropy(
    entropies: Sequence[float] | npt.NDArray[np.floating],
    max_group_tokens: int,
    rule: EntropyRule,
    may_join: npt.NDArray[np.bool_] | None = None,
) -> Sizes:
    """Return the group sizes of one answer, left to right; `may_join[i]` False makes token i begin a
    group."""
    sizes: Sizes = []
    highest = 0.0
    for i, entropy in enumerate(entropies):
        easy = entropy < rule.low or entropy < rule.ratio * highest
        if sizes and sizes[-1] < max_group_tokens and easy and (may_join is None or may_join[i]):
            sizes[-1] += 1
            highest = max(highest, float(entropy))
        else:
            sizes.append(1)
            highest = float(entropy)
    return sizes


def cut_at_random(
    length: int,
    max_group_tokens: int,
    draw: np.random.Generator,
    may_join: npt.NDArray[np.bool_] | None = None,
) -> Sizes:
    """Return group sizes uniform in 1..max_group_tokens, cut where a token may not join."""
    return _fill(length, lambda start: 1 + int(draw.integers(max_group_tokens)), may_join)


def cut_by_lengths(lengths: npt.NDArray[np.integer], may_join: npt.NDArray[np.bool_]) -> Sizes:
    """Return group sizes; `lengths[i]` is the wanted size of a group that begins at token i."""
    return _fill(len(lengths), lambda start: int(lengths[start]), may_join)


def _fill(count: int, wanted: Callable[[int], int], may_join: npt.NDArray[np.bool_] | None) -> Sizes:
    """Return groups of `wanted(first token)` tokens, ended earlier by a token that may not join."""
    sizes: Sizes = []
    left = 0
    for i in range(count):
        if left > 0 and (may_join is None or may_join[i]):
            sizes[-1] += 1
            left -= 1
        else:
            sizes.append(1)
            left = wanted(i) - 1
    return sizes


@dataclass(frozen=True)
class CutReport:
    """The groups that a rule makes of a set of answers."""

    rule: EntropyRule
    tokens: int
    groups: int
    histogram: dict[int, int]  # group size -> number of groups

    @property
    def tokens_per_group(self) -> float:
        return self.tokens / max(self.groups, 1)


def report_cuts(
    answers: Sequence[npt.NDArray[np.floating]], max_group_tokens: int, rule: EntropyRule
) -> CutReport:
    counts: Counter[int] = Counter()
    for entropies in answers:
        counts.update(cut_by_entropy(entropies, max_group_tokens, rule))
    return CutReport(
        rule=rule,
        tokens=sum(size * n for size, n in counts.items()),
        groups=sum(counts.values()),
        histogram={size: counts[size] for size in range(1, max_group_tokens + 1)},
    )
