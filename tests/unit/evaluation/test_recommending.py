"""The recommended setting, and the exact test behind it, which keeps its level at any share of answers that
differ."""

from __future__ import annotations

import math
from itertools import product

import pytest
from helpers.measured_rows import row

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.asking import EvaluationPlan, table
from hamburger_edge.evaluation.pairs import chance_of_loss, prompts_needed, whole_losses
from hamburger_edge.evaluation.recommending import Recommendation, choose, enough, fewest, recommend
from hamburger_edge.loop.dial import PLAIN, Recommended

VERIFY, MERGE = Recommended.of("verify"), Recommended.of("merge")


def test_fastest_setting_with_a_proven_small_loss_is_recommended() -> None:
    plain, safe = row(PLAIN, 0, 0, 1), row(VERIFY, 5, 2, 1.5)  # p = 2.45% for a loss of a point
    close, bold = row(Recommended("merge", 0.9), 8, 3, 2), row(MERGE, 40, 10, 3)
    assert recommend([plain, safe, close], 1.0) is safe
    assert recommend([plain, safe, close], 2.0) is close
    assert recommend([plain, safe, bold], 5.0) is bold
    assert recommend([plain, bold], 1.0) is plain
    assert recommend([plain, row(VERIFY, 6, 3, 1.5)], 1.0) is plain  # 3.3%: two looks have 5% together
    assert recommend([plain, row(VERIFY, 0, 0, 0.9)], 1.0) is plain  # nothing lost, and nothing won
    assert "recommended: verify-0.8" in str(Recommendation([row(PLAIN, prompts=333)], [plain, safe], 1.0))


def test_too_few_prompts_recommend_no_setting() -> None:
    """Five prompts without a disagreement recommended merge mode at 0.8."""
    alike = [row(PLAIN, 0, 0, 1, 4), row(MERGE, 0, 0, 3, 4)]
    few = Recommendation([row(PLAIN, 0, 0, 1, 1)], alike, 1.0)
    assert few.best is None
    assert few.to_json()["recommended"] is None
    assert "takes 558 prompts, and there are 5" in str(few)
    assert not enough(99, 50.0)  # a hundred at the least, whatever may be lost
    assert enough(100, 50.0)
    assert not enough(557, 1.0)
    assert fewest(1.0) == 558


def test_two_settings_with_the_best_evidence_are_confirmed() -> None:
    rows = [
        row(PLAIN, 0, 0, 1.0, 300),
        row(MERGE, 9, 3, 3.0, 300),
        row(Recommended("hybrid", 0.95), 1, 1, 2.2, 300),
        row(Recommended("hybrid", 0.9), 5, 4, 2.5, 300),
        row(Recommended("verify", 0.5), 0, 2, 0.9, 300),  # slower than plain decoding
        row(VERIFY, 2, 1, 1.9, 300),
    ]
    assert [each.name for each in choose(rows, 1.0)] == ["hybrid-0.95", "verify-0.8"]


def test_table_has_score_speed_and_interval() -> None:
    head, first = table([row(Recommended("merge", 0.9), 100, 0, 2)])
    assert dict(zip(head, first, strict=True)) == {
        "setting": "merge-0.9",
        "score": "80.0",
        "worse, better": "100, 0",
        "field f1": "95.0",
        "tokens a step": "2.50",
        "slots a token": "0.40",
        "ms a request": "100 (90 to 110)",
        "faster than plain": "2.00x",
    }
    assert row(PLAIN, 0, 0, 1).to_json()["name"] == "plain"
    modes = [setting.mode for setting in EvaluationPlan().settings()]
    assert modes == ["plain", *["merge", "hybrid"] * 3, "verify"]
    assert [setting.mode for setting in EvaluationPlan().settings(merges=False)] == ["plain", "verify"]
    with pytest.raises(InputError, match=r"evaluation\.points must be above 0"):
        EvaluationPlan(points=0)


# The exact test


def test_chance_of_loss_equals_known_values() -> None:
    """Without an answer that differs: the chance that none of so many is worse, were one in a hundred."""
    assert chance_of_loss(0, 0, 400, 0.01) == pytest.approx(0.99**400, abs=0.0011)
    assert chance_of_loss(0, 0, 5, 0.01) > 0.9  # five answers alike show nothing
    assert chance_of_loss(6, 13, 719, 0.01) == pytest.approx(0.0023, abs=1e-4)
    assert chance_of_loss(17, 9, 420, 0.01) > 0.5
    assert chance_of_loss(0, 0, 5000, 0.01) == 0.001
    assert prompts_needed(0.01, 0.05) == 301
    assert prompts_needed(0.05, 0.025) == 73


@pytest.mark.parametrize("share", [0.01, 0.012, 0.02, 0.04])  # of pairs that differ
def test_loss_of_the_margin_passes_at_most_at_the_level(share: float) -> None:
    """Not simulated: the chances of all results that would pass, added up."""
    pairs, margin, allowed = 400, 0.01, 0.05
    worse_by, better_by = (share + margin) / 2, (share - margin) / 2
    passing = 0.0
    for worse, better in product(range(40), range(40) if better_by else [0]):
        ways = math.comb(pairs, worse) * math.comb(pairs - worse, better)
        chance = ways * worse_by**worse * better_by**better * (1 - share) ** (pairs - worse - better)
        if chance > 1e-9 and chance_of_loss(worse, better, pairs, margin) <= allowed:
            passing += chance
    assert 0.01 < passing <= allowed


def test_partial_losses_are_rounded_at_random_to_whole_ones() -> None:
    assert whole_losses([1, 0, -1, 1, 0]) == (2, 1)
    worse, better = whole_losses([0.25] * 4000 + [-0.1] * 4000 + [0] * 100)
    assert worse == pytest.approx(1000, abs=80)
    assert better == pytest.approx(400, abs=60)
    assert whole_losses([0.5] * 9) == whole_losses([0.5] * 9)
