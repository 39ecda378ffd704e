"""The regression behind an answer's certainty, on known data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.certainty_fit import Likelihood, fit_and_judge, fit_certainty
from hamburger_edge.loop.certainty import Certainty


def drawn(truth: Certainty, count: int) -> tuple[list[float], list[bool]]:
    """Return likelihoods as a task has them, and answers that are right as often as `truth` gives."""
    random = np.random.default_rng(1)
    nlls = np.exp(random.normal(-1, 1.5, count)).tolist()
    return nlls, [bool(random.random() < truth.of(nll)) for nll in nlls]


def likelihoods(nlls: Sequence[float | None], right: Sequence[bool]) -> list[Likelihood]:
    return [Likelihood(nll, good) for nll, good in zip(nlls, right, strict=True)]


def test_fit_finds_the_coefficients_that_made_the_data() -> None:
    truth = Certainty(offset=0.5, slope=1.5)
    nlls, right = drawn(truth, 20_000)
    fit = fit_certainty(nlls, right)
    assert (fit.offset, fit.slope) == pytest.approx((0.5, 1.5), abs=0.1)
    assert fit == fit_certainty(nlls, right)


def test_report_is_of_answers_that_did_not_fit() -> None:
    nlls, right = drawn(Certainty(offset=0.5, slope=1.5), 4000)
    answers = likelihoods(nlls, right)
    report = fit_and_judge(answers[::2], answers[1::2])
    assert (len(report.fitted.right), len(report.judged.right)) == (2000, 2000)
    assert report.certainty == fit_certainty(nlls[::2], right[::2])
    assert report.judged.right == tuple(right[1::2])
    assert report.calibration_error < 0.03
    assert report.area > 0.75


def test_cut_answers_fit_nothing_and_are_judged_as_uncertain() -> None:
    nlls, right = drawn(Certainty(offset=0.5, slope=1.5), 400)
    cut: list[float | None] = [None if number % 10 < 2 else nll for number, nll in enumerate(nlls)]
    answers = likelihoods(cut, [good and nll is not None for good, nll in zip(right, cut, strict=True)])
    report = fit_and_judge(answers[::2], answers[1::2])
    assert (len(report.judged.right), report.answered[0].least) == (200, 0.0)
    with pytest.raises(InputError, match="every answer was cut"):
        fit_and_judge([Likelihood(None, False)] * 100, answers)


def test_off_topic_sentences_lower_the_certainty_as_a_tenth_of_the_prompts_would() -> None:
    nlls, right = drawn(Certainty(offset=0.5, slope=1.5), 400)
    answers, sentence = likelihoods(nlls, right), Likelihood(0.5, False)
    alone = fit_and_judge(answers, answers).certainty.of(0.5)
    few, many = (
        fit_and_judge(answers, answers, [sentence] * count, [sentence, Likelihood(0.01, True)])
        for count in (40, 4000)
    )
    assert few.certainty == many.certainty
    assert few.certainty.of(0.5) < alone
    # the right answer to an off-topic sentence is no wrong action
    assert few.off_topic == (few.certainty.of(0.5), 0.0)


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
