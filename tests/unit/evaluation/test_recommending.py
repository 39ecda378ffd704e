"""What is recommended, out of what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from measured_rows import row

from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.evaluation.asking import EvaluationPlan, Row, table
from hamburger_edge.evaluation.recommending import Recommendation, choose, enough, fewest, recommend
from hamburger_edge.loop.dial import PLAIN, Recommended

VERIFY = Recommended.of("verify")
SETTINGS = EvaluationPlan().settings


def found(rows: Sequence[Row], prompts: int = 1000) -> Recommendation:
    return Recommendation([row(PLAIN, 0, 0, 1, prompts // 3)], list(rows), 1.0)


def test_the_fastest_that_is_shown_to_lose_less() -> None:
    plain, safe = row(PLAIN, 0, 0, 1), row(VERIFY, 2, 2, 1.5)
    close, bold = row(Recommended("merge", 0.9), 8, 3, 2), row(Recommended.of("merge"), 40, 10, 3)
    assert recommend([plain, safe, close], 1.0) is safe
    assert recommend([plain, safe, close], 2.0) is close
    assert recommend([plain, safe, bold], 5.0) is bold
    assert recommend([plain, bold], 1.0) is plain
    assert recommend([plain, row(VERIFY, 0, 0, 0.9)], 1.0) is plain  # nothing lost, and nothing won


def test_few_prompts_recommend_nothing() -> None:
    """Five prompts without a disagreement recommended merge mode at 0.8."""
    alike = [row(PLAIN, 0, 0, 1, 4), row(Recommended.of("merge"), 0, 0, 3, 4)]
    few = Recommendation([row(PLAIN, 0, 0, 1, 1)], alike, 1.0)
    assert few.best is None
    assert few.to_json()["recommended"] is None
    assert "takes 558 prompts, and there are 5" in str(few)
    assert not enough(99, 50.0)  # a hundred at the least, whatever may be lost
    assert enough(100, 50.0)
    assert not enough(557, 1.0)
    assert fewest(1.0) == 558


def test_the_two_with_the_best_evidence_are_confirmed() -> None:
    rows = [row(setting, worse, better, faster, 300) for setting, worse, better, faster in CHOOSING]
    assert [each.name for each in choose(rows, 1.0)] == ["hybrid-0.95", "verify-0.8"]


CHOOSING = (
    (PLAIN, 0, 0, 1.0),
    (Recommended.of("merge"), 9, 3, 3.0),
    (Recommended("hybrid", 0.95), 1, 1, 2.2),
    (Recommended("hybrid", 0.9), 5, 4, 2.5),
    (Recommended("verify", 0.5), 0, 2, 0.9),  # slower than plain decoding
    (VERIFY, 2, 1, 1.9),
)


def simulated(worse: float, better: float, prompts: int, runs: int = 2000) -> float:
    """Share of runs that recommend anything but plain decoding, where every setting has these chances of an
    answer that is worse or better than plain decoding's."""
    draw, hits = np.random.default_rng(0), 0
    first = len(range(0, prompts, 3))
    for _ in range(runs):

        def asked(settings: Sequence[Recommended], count: int) -> list[Row]:
            rows = [row(PLAIN, 0, 0, 1, count)]
            for number, setting in enumerate(settings):
                lost, won, _ = draw.multinomial(count, [worse, better, 1 - worse - better])
                rows.append(row(setting, int(lost), int(won), 1.5 + number / 10, count))
            return rows

        chosen = choose(asked(SETTINGS[1:], first), 1.0)
        best = recommend(asked([each.setting for each in chosen], prompts - first), 1.0)
        hits += best.setting != PLAIN
    return hits / runs


@pytest.mark.parametrize("prompts", [600, 1000])
@pytest.mark.parametrize(("worse", "better"), [(0.01, 0.0), (0.015, 0.005), (0.03, 0.02)])
def test_a_loss_of_a_point_is_recommended_in_five_percent_of_runs_at_most(
    prompts: int, worse: float, better: float
) -> None:
    """The fastest of six looks was, in up to 45%."""
    assert simulated(worse, better, prompts) <= 0.05


def test_what_loses_nothing_is_found_the_oftener_the_more_prompts_there_are() -> None:
    """The figures of docs/research/quality.md."""
    power = {
        differ: [simulated(differ / 200, differ / 200, prompts, 400) for prompts in (600, 1000, 2000)]
        for differ in (0, 1, 2, 4)
    }
    assert power[0] == [1, 1, 1]
    for shares in power.values():
        assert shares == sorted(shares)


def test_what_people_see() -> None:
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
    assert "recommended: verify-0.8" in str(found([row(PLAIN, 0, 0, 1), row(VERIFY, 2, 2, 1.5)]))
    assert [each.mode for each in SETTINGS] == ["plain", *["merge", "hybrid"] * 3, "verify"]
    assert row(VERIFY, 0, 0, 1).name == "verify-0.8"
    assert row(PLAIN, 0, 0, 1).to_json()["name"] == "plain"
    with pytest.raises(InputError, match=r"evaluation\.points must be above 0"):
        EvaluationPlan(points=0)


def test_a_recommendation_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"recommended\.confidence must be 0 to 1, got 2"):
        Recommended("merge", 2)
    with pytest.raises(ConfigError, match=r"recommended\.confidence must be 1 in mode 'plain', got 0\.9"):
        Recommended("plain", 0.9)
