"""The scores of a run: the range of the right share, and warnings of few prompts."""

from __future__ import annotations

import pytest

from hamburger_edge.evaluation.asking import Row
from hamburger_edge.evaluation.recommending import Recommendation
from hamburger_edge.loop.dial import PLAIN
from hamburger_edge.tuning.judging.baselines import Baseline
from hamburger_edge.tuning.judging.score_range import score_range
from hamburger_edge.tuning.results.outcome import Outcome


def row(prompts: int, score: float) -> Row:
    return Row(PLAIN, score, {}, 0, 0, 1, 10, 1, 1, (1, 1, 1), 1, prompts=prompts)


def outcome(prompts: int, score: float, not_in_prompt: int | None = None) -> Outcome:
    third = prompts // 3
    found = Recommendation([row(third, score)], [row(prompts - third, score)], 1)
    return Outcome(found, [Baseline("most frequent", 0.2)], [], [], not_in_prompt)


@pytest.mark.parametrize(
    ("score", "prompts", "low", "high"), [(0.81, 35, 0.652, 0.906), (1, 35, 0.901, 1), (0, 4, 0, 0.490)]
)
def test_range_of_a_score_is_wilsons_interval(score: float, prompts: int, low: float, high: float) -> None:
    assert score_range(score, prompts) == pytest.approx((low, high), abs=1e-3)


def test_score_of_plain_decoding_has_its_range_in_every_form() -> None:
    found = outcome(36, 0.75)
    line = "plain decoding: 75.0% of 36 prompts; of all such prompts between 59 and 86% (95% interval)"
    assert line in str(found)
    assert line[1:] in found.markdown()
    assert found.to_json()["plain_range"] == pytest.approx([0.589, 0.862], abs=1e-3)


def test_few_prompts_are_a_warning_in_the_terminal_and_on_the_card() -> None:
    warning = "with 36 held-out prompts these scores are noise, since one answer is 2.8 points"
    assert str(outcome(36, 0.75)).startswith(f"warning: {warning}")
    assert f"**Warning: {warning}" in outcome(36, 0.75).markdown()
    assert "noise" not in str(outcome(60, 0.75))


def test_answers_with_values_that_are_not_in_the_prompt_are_counted_in_the_report() -> None:
    line = "values not in the prompt: in 2 of 60 answers"
    assert line in str(outcome(60, 0.75, not_in_prompt=2))
    assert line in outcome(60, 0.75, not_in_prompt=2).markdown()
    assert "not in the prompt" not in str(outcome(60, 0.75))
