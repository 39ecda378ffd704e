"""The exact test: it is wrong as seldom as it says, whatever share of the answers differs."""

from __future__ import annotations

import math
from itertools import pairwise, product

import pytest

from hamburger_edge.evaluation.pairs import chance_of_loss, prompts_needed, whole_losses


def test_known_chances() -> None:
    """Without an answer that differs: the chance that none of so many is worse, were one in a hundred."""
    assert chance_of_loss(0, 0, 400, 0.01) == pytest.approx(0.99**400, abs=0.0011)
    assert chance_of_loss(0, 0, 5, 0.01) > 0.9  # five answers alike show nothing
    assert chance_of_loss(6, 13, 719, 0.01) == pytest.approx(0.0023, abs=1e-4)
    assert chance_of_loss(17, 9, 420, 0.01) > 0.5
    assert chance_of_loss(0, 0, 5000, 0.01) == 0.001


def test_more_losses_are_no_better() -> None:
    grid = [[chance_of_loss(worse, better, 500, 0.01) for worse in range(8)] for better in (0, 2, 5)]
    for chances in grid:
        assert chances == sorted(chances)
    for fewer, more in pairwise(grid):
        assert all(m <= f + 1e-9 for f, m in zip(fewer, more, strict=True))


@pytest.mark.parametrize("share", [0.01, 0.012, 0.02, 0.04])  # of pairs that differ
def test_a_loss_of_the_margin_passes_as_seldom_as_said(share: float) -> None:
    """Not simulated: the chances of all results that would pass, added up."""
    pairs, margin, allowed = 400, 0.01, 0.05
    worse_by, better_by = (share + margin) / 2, (share - margin) / 2
    passing = 0.0
    for worse, better in product(range(40), repeat=2):
        logs = [(worse, worse_by), (better, better_by), (pairs - worse - better, 1 - share)]
        if better and not better_by:
            continue
        chance = math.exp(
            math.lgamma(pairs + 1)
            - sum(math.lgamma(count + 1) for count, _ in logs)
            + sum(count * math.log(by) for count, by in logs if count)
        )
        if chance > 1e-9 and chance_of_loss(worse, better, pairs, margin) <= allowed:
            passing += chance
    assert 0.01 < passing <= allowed


def test_how_many_prompts_it_takes() -> None:
    assert prompts_needed(0.01, 0.05) == 301
    assert prompts_needed(0.01, 0.025) == 372
    assert prompts_needed(0.05, 0.025) == 73


def test_parts_of_a_point_are_counted_as_whole_ones_now_and_then() -> None:
    assert whole_losses([1, 0, -1, 1, 0]) == (2, 1)
    worse, better = whole_losses([0.25] * 4000 + [-0.1] * 4000 + [0] * 100)
    assert worse == pytest.approx(1000, abs=80)
    assert better == pytest.approx(400, abs=60)
    assert whole_losses([0.5] * 9) == whole_losses([0.5] * 9)
