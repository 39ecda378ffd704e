"""Fit an answer's certainty to the answers of held-out prompts, for `eval --certainty` and `tune`.

    prompts --every second--> nll, right? ------logistic regression--> coefficients
            --the others----> certainty, right? ---------------------> area, calibration error, answered

Fitting and judging use separate prompts. The regression has a ridge on the standardized feature, which keeps
its coefficients finite if no answer is wrong. Off-topic sentences count as wrong answers, with a total weight
of OFF_TOPIC times that of the prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike

import numpy as np

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.certainty_report import ENOUGH, CertaintyReport, ScoredAnswers
from hamburger_edge.evaluation.checks import parse_prompt
from hamburger_edge.evaluation.judges import Case, Judge, checked, find_judge, fitting_judge
from hamburger_edge.loop.certainty import Certainty, feature, is_whole
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.loop.settings import Options
from hamburger_edge.model import Model
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.strict import decode_line, only_keys, read_lines
from hamburger_edge.support.values import check_text, safe_repr

RIDGE = 1.0
STEPS = 50  # of Newton's method; it converges in about ten
RIGHT = 1.0  # least score of a right answer
OFF_TOPIC = 0.1  # assumed number of off-topic sentences per prompt of the task


def fit_certainty(
    nlls: Sequence[float], right: Sequence[bool], weights: Sequence[float] | None = None
) -> Certainty:
    """Return the coefficients of a logistic regression by Newton's method."""
    values, y = np.array([feature(nll) for nll in nlls]), np.array(right, np.float64)
    w = np.ones(len(y)) if weights is None else np.array(weights)
    centre = np.average(values, weights=w)
    scale = max(np.average((values - centre) ** 2, weights=w) ** 0.5, 1e-3)
    x = np.column_stack([np.ones(len(values)), (centre - values) / scale])  # [answers, 2]
    ridge = RIDGE * np.diag([1e-3, 1])  # the offset is nearly free
    b = np.zeros(2)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ b, -30, 30)))
        gradient = x.T @ (w * (y - p)) - ridge @ b
        hessian = (x.T * (w * p * (1 - p))) @ x + ridge
        b = b + np.clip(np.linalg.solve(hessian, gradient), -5, 5)
    slope = max(0.0, b[1]) / scale  # a likelier answer is never less certain
    return Certainty(offset=round(float(b[0] + slope * centre), 4), slope=round(float(slope), 4))


def read_questions(path: str | PathLike[str]) -> tuple[list[Request], Judge]:
    """Read prompts with answers, or with checks, and return how to judge them.

    {"prompt": ..., "answer": ...}    JSON objects are compared by fields, other texts exactly
    {"prompt": ..., "check": ...}     see `checks.py`; prompts without a check are left out
    """
    lines = [(where, decode_line(line, where), line) for where, line in read_lines(path)]
    if not any(isinstance(data, dict) and "answer" in data for _, data, _ in lines):
        prompts = [parse_prompt(line, where) for where, _, line in lines]
        return [Request((), one.text, "", one.check, one.kind) for one in prompts if one.check], checked
    questions = []
    for where, data, _ in lines:
        only_keys(data, ("prompt", "answer"), where)
        prompt, answer = (data.get(name) for name in ("prompt", "answer"))
        for name, text in (("prompt", prompt), ("answer", answer)):
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"{where}: {name} must be a text, got {safe_repr(text)}")
            check_text(text, where)
        questions.append(Request((), prompt, answer))
    return questions, find_judge(fitting_judge([question.expected for question in questions]))


@dataclass(frozen=True)
class Likelihood:
    """An answer's negative log-likelihood, and whether the answer is right."""

    nll: float | None  # None: the answer was cut or repeats itself
    right: bool


def answer_likelihoods(
    model: Model,
    questions: Sequence[Request],
    judge: Judge,
    *,
    setting: Recommended | None = None,
    max_tokens: int | None = None,
    progress: Progress = no_progress,
) -> list[Likelihood]:
    """Answer every question, by default with the model's recommended setting.

    A question without token ids is asked as text. Without an expected answer and a check, no answer is right.
    """
    options: Options = {"max_tokens": max_tokens, "top_probabilities": 0}
    if setting is not None:
        options |= {"mode": setting.mode, "confidence": setting.confidence}
    nlls: list[float | None] = []
    cases: list[Case] = []
    for number, question in enumerate(questions):
        progress("measuring certainty", number, len(questions))
        prompt = list(question.ids) or question.prompt
        stream = model.stream(prompt, reuse_prefix=False, **options)
        result = stream.result()
        nlls.append(stream.nll if is_whole(result.tokens, result.finish_reason) else None)
        cases.append(Case(question.prompt, question.expected, result.text, question.check, question.kind))
    answerable = [case for case in cases if case.expected or case.check]
    scores = iter(judge(answerable).scores if answerable else ())
    right = [bool(case.expected or case.check) and next(scores) >= RIGHT for case in cases]
    return [Likelihood(nll, good) for nll, good in zip(nlls, right, strict=True)]


def measure_certainty(
    model: Model,
    questions: Sequence[Request],
    judge: Judge,
    *,
    off_topic: Sequence[Request] = (),
    max_tokens: int | None = None,
    progress: Progress = no_progress,
) -> CertaintyReport:
    """Answer all questions and sentences. Every second answer fits, the others judge."""
    if len(questions) < ENOUGH:
        raise InputError(f"{len(questions)} prompts have an answer, {ENOUGH} are needed to fit: add some")
    requests = [*questions, *off_topic]
    answers = answer_likelihoods(model, requests, judge, max_tokens=max_tokens, progress=progress)
    own, others = answers[: len(questions)], answers[len(questions) :]
    return fit_and_judge(own[::2], own[1::2], others[::2], others[1::2])


def fit_and_judge(
    fitting: Sequence[Likelihood],
    judging: Sequence[Likelihood],
    fitting_off_topic: Sequence[Likelihood] = (),
    judging_off_topic: Sequence[Likelihood] = (),
) -> CertaintyReport:
    """Fit the coefficients to some answers, and judge them by others."""
    if all(answer.nll is None for answer in fitting):
        raise InputError("every answer was cut or repeats itself: give more --max-tokens, or train on")
    weight = OFF_TOPIC * len(fitting) / max(1, len(fitting_off_topic))
    weighted = [(answer, 1.0) for answer in fitting] + [(answer, weight) for answer in fitting_off_topic]
    whole = [(answer.nll, answer.right, weight) for answer, weight in weighted if answer.nll is not None]
    nlls, right, weights = zip(*whole, strict=True)
    fit = fit_certainty(nlls, right, weights)

    def scored(answers: Sequence[Likelihood]) -> ScoredAnswers:
        certainties = tuple(0.0 if answer.nll is None else fit.of(answer.nll) for answer in answers)
        return ScoredAnswers(certainties, tuple(answer.right for answer in answers))

    off_topic = scored([replace(a, nll=None) if a.right else a for a in judging_off_topic])
    return CertaintyReport(fit, scored(fitting), scored(judging), off_topic.certainties)
