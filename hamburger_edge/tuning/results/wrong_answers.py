"""The wrong answers of a tuned model, and what to do next about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hamburger_edge.evaluation.judges import Case, Judge, Judgement
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.tables import table
from hamburger_edge.tuning.judging.baselines import Baseline
from hamburger_edge.tuning.shape import EPOCHS

SHOWN, WIDTH = 10, 60  # rows and characters per cell in a terminal
RULES = 0.95  # from this score of a baseline a model is not needed


@dataclass(frozen=True)
class WrongAnswer:
    prompt: str
    expected: str
    answer: str
    score: float


class RecordingJudge:
    """A judge that keeps the first judgement of each request.

    An evaluation answers each request with plain decoding first.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.rows: dict[tuple[str, str], WrongAnswer] = {}

    def __call__(self, cases: Sequence[Case]) -> Judgement:
        judgement = self.judge(cases)
        for case, score in zip(cases, judgement.scores, strict=True):
            row = WrongAnswer(case.prompt, case.expected, case.answer, score)
            self.rows.setdefault((case.prompt, case.expected), row)
        return judgement

    @property
    def wrong(self) -> list[WrongAnswer]:
        """The answers that are not wholly right, the worst first."""
        return sorted((row for row in self.rows.values() if row.score < 1), key=lambda row: row.score)


def write_wrong(path: Path, rows: Sequence[WrongAnswer]) -> None:
    with write_atomically(path) as temporary:
        lines = (json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
        temporary.write_text("".join(lines), encoding="utf-8")


def show_wrong(rows: Sequence[WrongAnswer], prompts: int) -> str:
    """Format the first SHOWN wrong answers of `prompts` for a terminal."""
    if not rows:
        return f"wrong answers: none of {prompts}"
    cells = [[_cell(row.prompt), _cell(row.expected), _cell(row.answer)] for row in rows[:SHOWN]]
    shown = f", the first {SHOWN}" if len(rows) > SHOWN else ""
    rows_of_text = table([["prompt", "expected", "answer"], *cells])
    return f"wrong answers: {len(rows)} of {prompts}{shown}\n{rows_of_text}"


def next_step(
    plain: Baseline, baselines: Sequence[Baseline], wrong: Sequence[WrongAnswer], epochs: float | None
) -> str:
    """Return one line of advice. `epochs`: of the base's training; None: it was not trained."""
    best = max(baselines, key=lambda baseline: baseline.score)
    if best.score >= RULES:
        return f"next: rules would do: {best.name} alone scores {100 * best.score:.1f}"
    if not wrong:
        return "next: nothing: every held-out answer is right"
    if epochs is not None and epochs < EPOCHS:
        return (
            f"next: more --minutes and another --work: the base saw each example {epochs:.1f} times, "
            f"{EPOCHS:g} times are better"
        )
    return f"next: more examples like the {len(wrong)} wrong ones: plain decoding scores {plain.score:.1%}"


def _cell(text: str) -> str:
    """Return the text on one line, cut to WIDTH characters."""
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
