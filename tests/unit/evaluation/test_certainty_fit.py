"""The regression behind an answer's certainty, on known data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.certainty_fit import (
    Answered,
    area_under_curve,
    calibration_error,
    fit_and_judge,
    fit_certainty,
)
from hamburger_edge.loop.certainty import Certainty


def drawn(truth: Certainty, count: int) -> tuple[list[float], list[bool]]:
    """Return likelihoods as a task has them, and answers that are right as often as `truth` gives."""
    random = np.random.default_rng(1)
    nlls = np.exp(random.normal(-1, 1.5, count)).tolist()
    return nlls, [bool(random.random() < truth.of(nll)) for nll in nlls]


def test_fit_finds_the_coefficients_that_made_the_data() -> None:
    truth = Certainty(offset=0.5, slope=1.5)
    nlls, right = drawn(truth, 20_000)
    fit = fit_certainty(nlls, right)
    assert (fit.offset, fit.slope) == pytest.approx((0.5, 1.5), abs=0.1)
    assert fit == fit_certainty(nlls, right)


def test_report_is_of_answers_that_did_not_fit() -> None:
    nlls, right = drawn(Certainty(offset=0.5, slope=1.5), 4000)
    report = fit_and_judge(nlls, right)
    assert (report.fitted, report.judged) == (2000, 2000)
    assert report.certainty == fit_certainty(nlls[::2], right[::2])
    assert report.right == sum(right[1::2]) / 2000
    assert report.calibration_error < 0.03
    assert report.area > 0.75
    shares = [each.right for each in report.answered]
    assert shares == sorted(shares)
    assert "| 50% |" in report.markdown()


def test_cut_answers_fit_nothing_and_are_judged_as_uncertain() -> None:
    nlls, right = drawn(Certainty(offset=0.5, slope=1.5), 400)
    cut: list[float | None] = [None if number % 10 < 2 else nll for number, nll in enumerate(nlls)]
    wrong = [good and nll is not None for good, nll in zip(right, cut, strict=True)]
    report = fit_and_judge(cut, wrong)
    assert (report.judged, report.answered[0].least) == (200, 0.0)
    with pytest.raises(InputError, match="every answer was cut"):
        fit_and_judge([None] * 100, [False] * 100)
    with pytest.raises(InputError, match="99 prompts have an answer, 100 are needed"):
        fit_and_judge(nlls[:99], right[:99])


@pytest.mark.parametrize("good", [True, False])
def test_equal_verdicts_and_equal_likelihoods_give_finite_coefficients(good: bool) -> None:
    certainty = fit_certainty([0.1] * 50, [good] * 50).of(0.1)
    assert (certainty > 0.5) == good
    assert math.isfinite(certainty)


def test_likelihoods_that_hardly_differ_give_finite_coefficients() -> None:
    nlls = [1.0, 1.0 + 1e-7] * 500
    assert math.isfinite(fit_certainty(nlls, [True, False] * 500).of(1.0))


def test_likelier_answers_are_never_less_certain() -> None:
    assert fit_certainty([0.1, 1.0] * 50, [False, True] * 50).slope == 0


def test_area_and_calibration_error_and_answered() -> None:
    certainties, right = [0.9, 0.8, 0.8, 0.3], [True, True, False, False]
    assert area_under_curve(certainties, right) == pytest.approx(3.5 / 4)
    assert area_under_curve([0.5], [True]) == 0.5
    assert calibration_error(certainties, right) == pytest.approx((0.1 + 0.6 + 0.3) / 4)
    assert Answered.of(0.5, certainties, right) == Answered(0.5, 0.8, 1.0)
