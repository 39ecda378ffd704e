"""What is recommended, out of what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hamburger_edge.errors import ConfigError
from hamburger_edge.evaluation.asking import PLAIN, EvaluationPlan, Row, recommend, table
from hamburger_edge.loop.dial import Recommended

VERIFY = Recommended.of("verify")


def row(setting: Recommended, lost: float, faster: float, error: float = 0.0) -> Row:
    figures = {"field_f1": 0.95}
    return Row(setting, 0.9 - lost, figures, lost, error, 0.9, 30, 2.5, 0.4, (90, 100, 110), faster)


def test_the_fastest_that_loses_little() -> None:
    plain, sure, bold = (
        row(PLAIN, 0, 1),
        row(Recommended("merge", 0.9), 0.005, 2),
        row(Recommended.of("merge"), 0.02, 3),
    )
    verify = row(VERIFY, -0.001, 1.5)
    assert recommend([plain, sure, bold, verify], 0.5) is sure
    assert recommend([plain, sure, bold, verify], 2.0) is bold
    assert recommend([plain, sure, bold, verify], 0.0) is verify
    assert recommend([plain, bold], 0.5) is plain
    assert recommend([plain, row(VERIFY, 0, 0.9)], 0.5) is plain  # nothing lost, and nothing won


def test_what_merges_has_to_show_that_it_loses_no_more() -> None:
    """Of ten settings on 300 prompts one that lost nothing by luck was recommended: it lost 2.5 points on 359
    others."""
    plain, verify = row(PLAIN, 0, 1), row(VERIFY, 0, 1.9, 0.005)
    lucky = row(Recommended("hybrid", 0.95), 0.0, 2.2, 0.0133)
    assert recommend([plain, lucky, verify], 0.5) is verify
    assert recommend([plain, lucky, verify], 1.5) is lucky
    assert recommend([plain, replace(lucky, lost_error=0.005), verify], 0.5).name == "hybrid-0.95"
    better = row(Recommended("merge", 0.95), -0.01, 2.5, 0.014)
    assert recommend([plain, better, verify], 0.5) is better


def test_a_loss_that_chance_does_not_explain_is_one() -> None:
    """Within the points that may be lost, and yet no accident: all that changed became worse. Verify mode's
    near ties go either way, as likely as not, and have nothing to show."""
    plain, sure = row(PLAIN, 0, 1), row(VERIFY, 0.005, 2, 0.02)
    assert sure.chance == 1
    assert replace(sure, worse=4, better=0).chance == 1 / 16
    assert replace(sure, worse=3, better=1).chance == 5 / 16
    assert 0.5 < replace(sure, worse=1000, better=1000).chance < 0.52  # more than a float's range of cases
    assert recommend([plain, replace(sure, worse=4)], 0.5).name == "verify-0.8"
    assert recommend([plain, replace(sure, worse=5)], 0.5) is plain
    assert recommend([plain, replace(sure, worse=40, better=38)], 0.5).name == "verify-0.8"


def test_what_people_see() -> None:
    head, first = table([row(Recommended("merge", 0.9), 0.1, 2)])
    assert dict(zip(head, first, strict=True)) == {
        "confidence": "merge-0.9",
        "score": "80.0",
        "worse, better": "0, 0",
        "field f1": "95.0",
        "tokens a step": "2.50",
        "slots a token": "0.40",
        "ms a request": "100 (90 to 110)",
        "faster than plain": "2.00x",
    }
    assert [each.mode for each in EvaluationPlan().settings] == ["plain", *["merge", "hybrid"] * 3, "verify"]
    assert row(VERIFY, 0, 1).name == "verify-0.8"
    assert row(PLAIN, 0, 1).to_json()["name"] == "plain"


def test_a_recommendation_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"recommended\.confidence must be 0 to 1, got 2"):
        Recommended("merge", 2)
    with pytest.raises(ConfigError, match=r"recommended\.confidence must be 1 in mode 'plain', got 0\.9"):
        Recommended("plain", 0.9)
