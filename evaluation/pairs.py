"""Whether a setting loses less than a margin of plain decoding's score: an exact test on pairs of answers.

Each prompt is answered by plain decoding and by the setting. Of n pairs, `worse` lost the point and `better`
won one. Assumed is a true loss (the chance of worse less that of better) of the margin or more:

    merit(w, b) = (n * margin - (w - b)) / sqrt(w + b + n * margin)     the higher, the less is lost
    p           = the largest chance of such a merit or a higher one    over all shares of pairs that differ

That share is unknown, so p is the maximum over those that its own exact upper bound allows, plus the chance
that the bound is wrong (Berger and Boos 1994). Nothing here is an approximation that needs many prompts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

BEYOND = 0.001  # chance that the bound on the share of pairs that differ is wrong
STEP = 1.08  # from one share that is tried to the next
NOTHING = 1e-12  # chances below are left out, and counted in full

Doubles = npt.NDArray[np.float64]


def merit(worse: int, better: int, pairs: int, margin: float) -> float:
    """Evidence that less than the margin is lost."""
    return (pairs * margin - (worse - better)) / math.sqrt(worse + better + pairs * margin)


@cache
def chance_of_loss(worse: int, better: int, pairs: int, margin: float) -> float:
    """The p-value of "it loses `margin` or more", a share of the score above 0."""
    least = merit(worse, better, pairs, margin)
    most = _upper_bound(worse + better, pairs)
    if most < margin:  # not even all pairs that differ could lose so much
        return BEYOND
    steps = max(1, math.ceil(math.log(most / margin) / math.log(STEP)))
    shares = [min(most, margin * STEP**step) for step in range(steps + 1)]
    return min(1.0, BEYOND + max(_tail(least, pairs, margin, round(share, 9)) for share in shares))


def whole_losses(losses: Sequence[float]) -> tuple[int, int]:
    """Losses of -1 to 1 -> how many are worse and better by a whole point. A part of a point counts as a
    whole one with that chance, by a fixed draw, so that the test is exact for them too."""
    draw = random.Random(0)
    counted = [loss for loss in losses if draw.random() < abs(loss)]
    return sum(loss > 0 for loss in counted), sum(loss < 0 for loss in counted)


def prompts_needed(margin: float, chance: float) -> int:
    """The fewest pairs that can show it, if no answer differs."""
    least = math.ceil(math.log(chance) / math.log1p(-margin))
    return next(
        pairs for pairs in range(least, 2 * least + 9) if chance_of_loss(0, 0, pairs, margin) <= chance
    )


def _tail(least: float, pairs: int, margin: float, share: float) -> float:
    """The chance of `least` merit, where this share of pairs differs and the true loss is the margin."""
    chances, cumulative = _distribution(pairs, margin, share)
    differ = np.arange(len(chances))
    worse = np.floor((differ + pairs * margin - least * np.sqrt(differ + pairs * margin)) / 2 + 1e-9)
    some = worse >= 0
    upto = np.minimum(worse[some], differ[some]).astype(int)
    return float(chances[some] @ cumulative[differ[some], upto]) + NOTHING * pairs


@cache
def _distribution(pairs: int, margin: float, share: float) -> tuple[Doubles, Doubles]:
    """Chances that so many pairs differ, [m], and that at most so many of them are worse, [m, w]."""
    chances = _binomial(pairs, share)
    chances = chances[: np.flatnonzero(chances > NOTHING)[-1] + 1]
    toward = min(1.0, (share + margin) / (2 * share))  # of those that differ, the share of worse ones
    cumulative = np.ones((len(chances), len(chances)))
    for differ in range(len(chances)):
        cumulative[differ, : differ + 1] = np.cumsum(_binomial(differ, toward))
    return chances, cumulative


def _upper_bound(found: int, pairs: int) -> float:
    """Of the share of pairs that differ (Clopper and Pearson)."""
    low, high = found / pairs, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        wrong = _binomial(pairs, middle)[: found + 1].sum() <= BEYOND
        low, high = (low, middle) if wrong else (middle, high)
    return high


def _binomial(tries: int, chance: float) -> Doubles:
    """[0..tries]"""
    hits = np.arange(tries + 1)
    if chance >= 1:
        return np.asarray(hits == tries, np.float64)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, tries + 1)))])
    logs = factorials[tries] - factorials[hits] - factorials[tries - hits]
    found: Doubles = np.exp(logs + hits * math.log(chance) + (tries - hits) * math.log1p(-chance))
    return found
