"""Fit an answer's certainty to the answers of held-out prompts, for `eval --certainty`.

    prompts --every second--> nll, right? ------logistic regression--> coefficients
            --the others----> certainty, right? ---------------------> area, calibration error, answered

Fitting and judging use separate prompts. The regression has a ridge on the standardized feature, which keeps
its coefficients finite if no answer is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import parse_prompt
from hamburger_edge.evaluation.judges import Case, Judge, checked, find_judge, fitting_judge
from hamburger_edge.loop.certainty import Certainty, feature, is_whole
from hamburger_edge.model import Model
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.strict import decode_line, only_keys, read_lines
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned
from hamburger_edge.support.values import check_text, safe_repr

FEWEST = 100  # minimum of prompts
RIDGE = 1.0
STEPS = 50  # of Newton's method; it converges in about ten
BINS = 10
RIGHT = 1.0  # least score of a right answer
SHARES = (1.0, 0.9, 0.8, 0.7, 0.5)  # of answered prompts


def fit_certainty(nlls: Sequence[float], right: Sequence[bool]) -> Certainty:
    """Return the coefficients of a logistic regression by Newton's method."""
    values, y = np.array([feature(nll) for nll in nlls]), np.array(right, np.float64)
    centre, scale = values.mean(), max(values.std(), 1e-3)
    x = np.column_stack([np.ones(len(values)), (centre - values) / scale])  # [answers, 2]
    ridge = RIDGE * np.diag([1e-3, 1])  # the offset is nearly free
    weights = np.zeros(2)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        gradient = x.T @ (y - p) - ridge @ weights
        hessian = (x.T * (p * (1 - p))) @ x + ridge
        weights = weights + np.clip(np.linalg.solve(hessian, gradient), -5, 5)
    slope = max(0.0, weights[1]) / scale  # a likelier answer is never less certain
    return Certainty(offset=round(float(weights[0] + slope * centre), 4), slope=round(float(slope), 4))


def area_under_curve(certainties: Sequence[float], right: Sequence[bool]) -> float:
    """Return the probability that a right answer has a higher certainty than a wrong one; ties count half."""
    values, good = np.array(certainties), np.array(right, bool)
    higher = values[good][:, None] - values[~good][None, :]
    return float(((higher > 0) + 0.5 * (higher == 0)).mean()) if higher.size else 0.5


def calibration_error(certainties: Sequence[float], right: Sequence[bool]) -> float:
    """Return the mean over answers of `|mean certainty - share of right answers|` of their bin.

    The ten bins have equal widths.
    """
    values, good = np.array(certainties), np.array(right, np.float64)
    bins = np.minimum((values * BINS).astype(int), BINS - 1)
    gaps = (abs((values[bins == each] - good[bins == each]).sum()) for each in range(BINS))
    return float(sum(gaps) / len(values))


def read_questions(path: str | PathLike[str]) -> tuple[list[Case], Judge]:
    """Read prompts with answers, or with checks, and return how to judge them.

    {"prompt": ..., "answer": ...}    JSON objects are compared by fields, other texts exactly
    {"prompt": ..., "check": ...}     see `checks.py`; prompts without a check are left out
    """
    lines = [(where, decode_line(line, where), line) for where, line in read_lines(path)]
    if not any(isinstance(data, dict) and "answer" in data for _, data, _ in lines):
        prompts = [parse_prompt(line, where) for where, _, line in lines]
        return [Case(one.text, "", "", one.check, one.kind) for one in prompts if one.check], checked
    cases = []
    for where, data, _ in lines:
        only_keys(data, ("prompt", "answer"), where)
        prompt, answer = (data.get(name) for name in ("prompt", "answer"))
        for name, text in (("prompt", prompt), ("answer", answer)):
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"{where}: {name} must be a text, got {safe_repr(text)}")
            check_text(text, where)
        cases.append(Case(prompt, answer, ""))
    return cases, find_judge(fitting_judge([case.expected for case in cases]))


def measure_certainty(
    model: Model,
    questions: Sequence[Case],
    judge: Judge,
    *,
    max_tokens: int | None = None,
    progress: Progress = no_progress,
) -> CertaintyReport:
    """Ask every question with the model's recommended setting, then fit and judge."""
    if len(questions) < FEWEST:
        raise InputError(f"{len(questions)} prompts have an answer, {FEWEST} are needed to fit: add some")
    nlls: list[float | None] = []
    cases: list[Case] = []
    for number, case in enumerate(questions):
        progress("answering", number, len(questions))
        stream = model.stream(case.prompt, max_tokens=max_tokens, top_probabilities=0, reuse_prefix=False)
        result = stream.result()
        nlls.append(stream.nll if is_whole(result.tokens, result.finish_reason) else None)
        cases.append(replace(case, answer=result.text))
    return fit_and_judge(nlls, [score >= RIGHT for score in judge(cases).scores])


@dataclass(frozen=True)
class Answered:
    """The most certain answers, as many as a share of all."""

    share: float
    least: float  # the lowest certainty among them
    right: float  # share of right answers among them

    @classmethod
    def of(cls, share: float, certainties: Sequence[float], right: Sequence[bool]) -> Answered:
        count = max(1, round(share * len(right)))
        order = np.argsort(-np.array(certainties), kind="stable")[:count]
        return cls(share, certainties[order[-1]], float(np.array(right, np.float64)[order].mean()))


@dataclass(frozen=True)
class CertaintyReport:
    certainty: Certainty
    fitted: int  # prompts
    judged: int  # other prompts
    right: float  # share of right answers among the judged
    area: float
    calibration_error: float
    answered: tuple[Answered, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        """Format for a terminal."""
        return f"{self._summary}\n\n{aligned(self._table)}"

    def markdown(self) -> str:
        return f"{self._summary}\n\n{pipes(self._table)}"

    @property
    def _summary(self) -> str:
        return (
            f"certainty fitted on {self.fitted} prompts, judged on {self.judged} others: area under the "
            f"curve {self.area:.3f}, calibration error {100 * self.calibration_error:.1f} points"
        )

    @property
    def _table(self) -> list[list[str]]:
        rows = ([f"{100 * a.share:.0f}%", f"{a.least:.3f}", f"{100 * a.right:.1f}%"] for a in self.answered)
        return [["answered", "certainty at least", "right"], *rows]


def fit_and_judge(nlls: Sequence[float | None], right: Sequence[bool]) -> CertaintyReport:
    """Fit on every second answer, judge on the others. None: the answer was cut or is a loop."""
    if len(right) < FEWEST:
        raise InputError(f"{len(right)} prompts have an answer, {FEWEST} are needed to fit: add some")
    fitting = [(nll, good) for nll, good in zip(nlls[::2], right[::2], strict=True) if nll is not None]
    if not fitting:
        raise InputError("every answer was cut or repeats itself: give more --max-tokens, or train on")
    fit = fit_certainty([nll for nll, _ in fitting], [good for _, good in fitting])
    good = right[1::2]
    values = [0.0 if nll is None else fit.of(nll) for nll in nlls[1::2]]
    return CertaintyReport(
        certainty=fit,
        fitted=len(right) - len(good),
        judged=len(good),
        right=sum(good) / len(good),
        area=area_under_curve(values, good),
        calibration_error=calibration_error(values, good),
        answered=tuple(Answered.of(share, values, good) for share in SHARES),
    )
