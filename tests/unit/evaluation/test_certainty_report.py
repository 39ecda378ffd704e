"""The figures of a measured certainty, on known data."""

from __future__ import annotations

import pytest

from hamburger_edge.evaluation.certainty_report import (
    Answered,
    Bin,
    CertaintyReport,
    ScoredAnswers,
    area_under_curve,
    calibration_error,
    reliability,
)
from hamburger_edge.loop.certainty import Certainty

CERTAINTIES = (0.9, 0.8, 0.8, 0.3)
RIGHT = (True, True, False, False)
REPORT = CertaintyReport(
    Certainty(1, 1),
    ScoredAnswers(CERTAINTIES, RIGHT),
    ScoredAnswers(CERTAINTIES, RIGHT),
    (0.85, 0.1, 0.0, 0.0),
)


def test_area_and_calibration_error_and_answered() -> None:
    assert area_under_curve(CERTAINTIES, RIGHT) == pytest.approx(3.5 / 4)
    assert area_under_curve([0.5], [True]) == 0.5
    assert calibration_error(CERTAINTIES, RIGHT) == pytest.approx((0.1 + 0.6 + 0.3) / 4)
    assert Answered.of(0.5, CERTAINTIES, RIGHT) == Answered(0.5, 0.8, 1.0)


def test_reliability_has_a_bin_for_each_tenth_with_answers() -> None:
    assert reliability([0.95, 1.0, 0.25], [True, False, True]) == [Bin(1, 0.25, 1.0), Bin(2, 0.975, 0.5)]


def test_threshold_is_the_lowest_that_reaches_the_share() -> None:
    scored = ScoredAnswers((0.99996, 0.8, 0.7, 0.3), (True, True, False, True))
    assert scored.threshold(0.5) == 0.3
    assert scored.threshold(1.0) == 0.8
    assert scored.above(0.8) == (0.5, 1.0)
    assert ScoredAnswers((0.9, 0.5), (False, True)).threshold(0.9) is None


def test_table_has_the_share_of_off_topic_sentences_that_pass() -> None:
    assert [row.split("|")[1:-1] for row in REPORT.markdown(60).splitlines() if row.startswith("| 50%")] == [
        [" 50% ", " 0.800 ", " 100.0% ", " 25.0% "]
    ]
    assert "min_certainty 0.8, chosen on the prompts that fitted; 75.0% of the others pass" in REPORT.text(60)
    assert "no min_certainty gave 100.5% right" in REPORT.text(100.5)
    figures = REPORT.to_json(60)
    assert figures["wanted"] == {"right": 0.6, "min_certainty": 0.8}
    assert figures["answered"][0] == {"share": 1.0, "least": 0.3, "right": 0.5, "off_topic": 0.25}


def test_figures_of_few_prompts_are_called_noise() -> None:
    assert "warning: 4 prompts fit the certainty and 4 judge it" in REPORT.text()
    assert "figures are noise" in REPORT.markdown()
    many = ScoredAnswers(CERTAINTIES * 25, RIGHT * 25)
    assert "noise" not in CertaintyReport(Certainty(1, 1), many, many).text()
