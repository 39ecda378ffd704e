"""Answer each request at every setting, and compare answers and times.

    prompt 1 --plain, merge-0.95, hybrid-0.95, ..., verify-0.8--> answers, seconds    prompt 2 --...

Answers and times of a setting are compared with those of plain decoding on the same prompts.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.evaluation.checks import Check
from hamburger_edge.evaluation.judges import Case, Judge, Judgement
from hamburger_edge.evaluation.kept_answers import Answer, keeping
from hamburger_edge.evaluation.pairs import chance_of_loss, whole_losses
from hamburger_edge.loop.dial import PLAIN, Mode, Recommended
from hamburger_edge.model import Model
from hamburger_edge.support.progress import Progress, no_progress, time_left
from hamburger_edge.support.values import number_in


@dataclass(frozen=True)
class EvaluationPlan:
    prompts: int = 1000  # maximum of held-out examples
    # for modes merge and hybrid; verify uses the lowest
    confidences: tuple[float, ...] = (0.95, 0.9, 0.8)
    points: float = 1.0  # of 100: maximum loss of score of a recommended setting
    quick: bool = False  # evaluate only hybrid at the first confidence, verify and plain

    def __post_init__(self) -> None:
        number_in("evaluation.points", self.points, 0, 50, above=True)

    def settings(self, *, merges: bool = True) -> tuple[Recommended, ...]:
        """Return the settings to evaluate, plain decoding first. `merges`: whether the model does."""
        modes: tuple[Mode, ...] = ("hybrid",) if self.quick else ("merge", "hybrid")
        confidences = self.confidences[:1] if self.quick else self.confidences
        merging = (Recommended(mode, confidence) for confidence in confidences for mode in modes)
        return PLAIN, *(merging if merges else ()), Recommended("verify", min(self.confidences))


@dataclass(frozen=True)
class Request:
    """A prompt, as token ids and as text, with its expected answer."""

    ids: tuple[int, ...]
    prompt: str
    expected: str
    check: Check | None = None  # a rule instead of an expected answer
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """The results of one setting."""

    setting: Recommended
    score: float  # mean of the judge's scores
    figures: dict[str, float]
    lost: float  # mean loss of score against plain decoding on the same prompts ...
    lost_error: float  # ... and its standard error
    same: float  # share of answers with the same text as plain decoding's
    tokens: float  # mean per answer
    tokens_per_step: float
    slots_per_token: float  # of the answers
    milliseconds: tuple[float, float, float]  # per request: lower quartile, median, upper quartile
    faster: float  # median over prompts of `plain seconds / seconds`
    worse: int = 0  # answers that score lower than plain decoding's to the same prompt ...
    better: int = 0  # ... and higher
    losses: tuple[int, int] = (0, 0)  # worse and better in whole points, see `pairs.whole_losses`
    prompts: int = 0

    @property
    def name(self) -> str:
        return str(self.setting)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}

    def chance_of_loss(self, points: float) -> float:
        """Return the p-value of the hypothesis that the setting loses `points` or more."""
        return chance_of_loss(*self.losses, self.prompts, points / 100)


def evaluate(
    model: Model,
    requests: Sequence[Request],
    judge: Judge,
    settings: Sequence[Recommended],
    *,
    max_tokens: int,
    kept: Path | None = None,
    progress: Progress = no_progress,
) -> list[Row]:
    """Return one row per setting. `settings` must begin with plain decoding.

    `kept`: a file that stores each answer. The next call with the same requests resumes from it. The caller
    deletes it after storing the figures.
    """
    identity = _identity(model, requests, settings, max_tokens)
    with keeping(kept, identity, len(requests), len(settings)) as answers:
        model.generate(list(requests[0].ids), max_tokens=2, reuse_prefix=False)  # warm up memory
        for request in requests[len(answers.rows) :]:
            _tell(progress, answers.rows, len(requests))
            answers.add([_answer(model, request, setting, max_tokens) for setting in settings])
        _tell(progress, answers.rows, len(requests))
    columns = list(zip(*answers.rows, strict=True))
    judged = [judge(_cases(requests, column)) for column in columns]
    return [
        _row(setting, column, verdict, columns[0], judged[0])
        for setting, column, verdict in zip(settings, columns, judged, strict=True)
    ]


def _identity(
    model: Model, requests: Sequence[Request], settings: Sequence[Recommended], max_tokens: int
) -> dict[str, Any]:
    """Return everything that determines answers and times."""
    info = model.info
    return {
        "fingerprint": info.fingerprint,
        "backend": info.backend,
        "provider": info.provider,
        "kv_bytes_per_slot": info.kv_bytes_per_slot,
        "cache_slots": info.cache_slots,
        "max_tokens": max_tokens,
        "settings": [str(setting) for setting in settings],
        "requests": hashlib.sha256(json.dumps([request.ids for request in requests]).encode()).hexdigest(),
    }


def _tell(progress: Progress, rows: Sequence[Sequence[Answer]], total: int) -> None:
    seconds = sum(answer.seconds for row in rows for answer in row)
    left = time_left(seconds / len(rows) * (total - len(rows))) if rows else ""
    progress("evaluating", len(rows), total, left)


def _answer(model: Model, request: Request, setting: Recommended, max_tokens: int) -> Answer:
    begin = time.perf_counter()
    result = model.generate(
        list(request.ids),
        mode=setting.mode,
        confidence=setting.confidence,
        max_tokens=max_tokens,
        reuse_prefix=False,
    )
    seconds = time.perf_counter() - begin
    stats = result.stats
    return Answer(result.text, seconds, stats.tokens, stats.macro_steps, stats.slots - stats.prompt_tokens)


def _cases(requests: Sequence[Request], answers: Sequence[Answer]) -> list[Case]:
    return [
        Case(request.prompt, request.expected, answer.text, request.check, request.kind)
        for request, answer in zip(requests, answers, strict=True)
    ]


def _row(
    setting: Recommended,
    answers: Sequence[Answer],
    judged: Judgement,
    plain: Sequence[Answer],
    plain_judged: Judgement,
) -> Row:
    losses = [a - b for a, b in zip(plain_judged.scores, judged.scores, strict=True)]
    ratios = [a.seconds / b.seconds for a, b in zip(plain, answers, strict=True)]
    error = statistics.stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else 0.0
    seconds = [answer.seconds for answer in answers]
    quartiles = statistics.quantiles(seconds, n=4) if len(losses) > 1 else seconds * 3
    tokens = sum(answer.tokens for answer in answers)
    return Row(
        setting=setting,
        score=judged.score,
        figures=judged.figures,
        lost=statistics.fmean(losses),
        lost_error=error,
        same=statistics.fmean(a.text == b.text for a, b in zip(plain, answers, strict=True)),
        tokens=tokens / len(losses),
        tokens_per_step=tokens / max(1, sum(answer.steps for answer in answers)),
        slots_per_token=sum(answer.slots for answer in answers) / max(1, tokens),
        milliseconds=(1e3 * quartiles[0], 1e3 * quartiles[1], 1e3 * quartiles[2]),
        faster=statistics.median(ratios),
        worse=sum(loss > 0 for loss in losses),
        better=sum(loss < 0 for loss in losses),
        losses=whole_losses(losses),
        prompts=len(losses),
    )


def table(rows: Sequence[Row], points: float | None = None) -> list[list[str]]:
    """Return table rows: a header and one row per setting.

    With `points` a last column holds the chance that the setting loses that many points.
    """
    figures = list(rows[0].figures)
    head = ["setting", "score", "worse, better", *(name.replace("_", " ") for name in figures)]
    head += ["tokens a step", "slots a token", "ms a request", "faster than plain"]
    lines = [head + ([] if points is None else [f"chance of losing {points:g} points"])]
    for row in rows:
        own = [f"{100 * row.figures[name]:.1f}" for name in figures]
        low, middle, high = row.milliseconds
        lines.append(
            [
                row.name,
                f"{100 * row.score:.1f}",
                f"{row.worse}, {row.better}",
                *own,
                f"{row.tokens_per_step:.2f}",
                f"{row.slots_per_token:.2f}",
                f"{middle:.0f} ({low:.0f} to {high:.0f})",
                f"{row.faster:.2f}x",
            ]
        )
        if points is not None:
            lines[-1].append("" if row.setting == PLAIN else f"{100 * row.chance_of_loss(points):.1f}%")
    return lines
