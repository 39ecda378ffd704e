"""Test exactly, on pairs of answers, whether a setting loses less than a margin of plain decoding's score.

Plain decoding and the setting answer each of n prompts. The setting is worse on w of them and better on b.
The null hypothesis is `P(worse) - P(better) >= margin`:

    merit(w, b) = (n * margin - (w - b)) / sqrt(w + b + n * margin)     higher = less loss
    p           = max of P(merit >= the observed merit)                 over the share of pairs that differ

The share of pairs that differ is unknown. So p is the maximum over all shares up to an exact upper bound,
plus the probability that the bound is wrong (Berger and Boos 1994). There is no large-sample approximation.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

BEYOND = 0.001  # probability that the bound on the share of pairs that differ is wrong
STEP = 1.08  # ratio of consecutive shares in the search for the maximum
NOTHING = 1e-12  # smaller tail probabilities are dropped, and this bound per pair is added

Doubles = npt.NDArray[np.float64]


def merit(worse: int, better: int, pairs: int, margin: float) -> float:
    """Return the test statistic: higher means more evidence that the loss is below the margin."""
    return (pairs * margin - (worse - better)) / math.sqrt(worse + better + pairs * margin)


@cache
def chance_of_loss(worse: int, better: int, pairs: int, margin: float) -> float:
    """Return the p-value of "the setting loses `margin` or more", a share of the score above 0."""
    least = merit(worse, better, pairs, margin)
    upper = _upper_bound(worse + better, pairs)
    if upper < margin:  # a loss of `margin` needs more differing pairs than the bound allows
        return BEYOND
    steps = max(1, math.ceil(math.log(upper / margin) / math.log(STEP)))
    shares = [min(upper, margin * STEP**step) for step in range(steps + 1)]
    return min(1.0, BEYOND + max(_tail(least, pairs, margin, round(share, 9)) for share in shares))


def whole_losses(losses: Sequence[float]) -> tuple[int, int]:
    """Return how many losses count as worse and how many as better by a whole point.

    A loss x in [-1, 1] counts with probability |x|, by a seeded draw, so that the test stays exact.
    """
    draw = random.Random(0)
    counted = [loss for loss in losses if draw.random() < abs(loss)]
    return sum(loss > 0 for loss in counted), sum(loss < 0 for loss in counted)


def prompts_needed(margin: float, chance: float) -> int:
    """Return the fewest pairs with a p-value of at most `chance` if no answer differs."""
    least = math.ceil(math.log(chance) / math.log1p(-margin))
    return next(
        pairs for pairs in range(least, 2 * least + 9) if chance_of_loss(0, 0, pairs, margin) <= chance
    )


def _tail(least: float, pairs: int, margin: float, share: float) -> float:
    """Return P(merit >= least), given the share of pairs that differ and a true loss of `margin`."""
    chances, cumulative = _distribution(pairs, margin, share)
    differ = np.arange(len(chances))
    worse = np.floor((differ + pairs * margin - least * np.sqrt(differ + pairs * margin)) / 2 + 1e-9)
    some = worse >= 0
    upto = np.minimum(worse[some], differ[some]).astype(int)
    return float(chances[some] @ cumulative[differ[some], upto]) + NOTHING * pairs


@cache
def _distribution(pairs: int, margin: float, share: float) -> tuple[Doubles, Doubles]:
    """Return P(m pairs differ) as [m], and P(at most w of m are worse) as [m, w]."""
    chances = _binomial(pairs, share)
    chances = chances[: np.flatnonzero(chances > NOTHING)[-1] + 1]
    toward = min(1.0, (share + margin) / (2 * share))  # P(worse | the pair differs)
    cumulative = np.ones((len(chances), len(chances)))
    for differ in range(len(chances)):
        cumulative[differ, : differ + 1] = np.cumsum(_binomial(differ, toward))
    return chances, cumulative


def _upper_bound(hits: int, pairs: int) -> float:
    """Return the Clopper-Pearson upper bound of the share of pairs that differ."""
    low, high = hits / pairs, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        wrong = _binomial(pairs, middle)[: hits + 1].sum() <= BEYOND
        low, high = (low, middle) if wrong else (middle, high)
    return high


def _binomial(tries: int, chance: float) -> Doubles:
    """Return the binomial probabilities of 0 to `tries` hits."""
    hits = np.arange(tries + 1)
    if chance >= 1:
        return np.asarray(hits == tries, np.float64)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, tries + 1)))])
    logs = factorials[tries] - factorials[hits] - factorials[tries - hits]
    probabilities: Doubles = np.exp(logs + hits * math.log(chance) + (tries - hits) * math.log1p(-chance))
    return probabilities
