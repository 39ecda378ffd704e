"""Which mode and confidence cost no answers: a bundle's checkable questions at several settings in turn, and
the setting it then recommends. The measure is that of `tune`'s evaluation; here rules judge the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.asking import EvaluationPlan, Request, Row, evaluate, recommend, table
from hamburger_edge.evaluation.checks import Prompt, read_prompts
from hamburger_edge.evaluation.judges import Case, Judge, Judgement
from hamburger_edge.evaluation.reading import prompt_ids
from hamburger_edge.model import Model
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.tables import table as aligned

CHECKABLE = Path(__file__).with_name("checkable.jsonl")
FEWEST = 100  # checkable answers: with less, no loss can be told from chance
MAX_TOKENS = 96


@dataclass(frozen=True)
class Recommendation:
    rows: list[Row]
    best: Row
    questions: int
    points: float

    def to_json(self) -> dict[str, Any]:
        return {
            "questions": self.questions,
            "points": self.points,
            "recommended": self.best.name,
            "rows": [row.to_json() for row in self.rows],
        }

    def __str__(self) -> str:
        return (
            f"{aligned(table(self.rows))}\n\n"
            f"{self.questions} questions, each at every setting in turn; worse, better: answers right by\n"
            "plain decoding alone, and by this setting alone\n"
            f"recommended: {self.best.name}, the fastest that loses no more than {self.points:g} points:\n"
            "its loss and a standard error of it; in verify mode a loss that is no chance"
        )


def questions_of(path: str | Path | None) -> list[Prompt]:
    """Those of a file that can be checked; the built-in set where none is named."""
    prompts = [prompt for prompt in read_prompts(path or CHECKABLE) if prompt.check is not None]
    if len(prompts) < FEWEST:
        raise InputError(
            f"{path}: {len(prompts)} prompts have a check, {FEWEST} are needed to tell a loss from chance: "
            "add some, or leave --prompts out"
        )
    return prompts


def find_recommendation(
    model: Model,
    questions: Sequence[Prompt],
    plan: EvaluationPlan,
    *,
    max_tokens: int = MAX_TOKENS,
    kept: Path | None = None,
    progress: Progress = no_progress,
) -> Recommendation:
    """`kept` as for `evaluate`."""
    requests = [Request(tuple(prompt_ids(model, each.text)), each.text, "") for each in questions]
    most = max(len(request.ids) for request in requests) + max_tokens
    if most > (has := min(model.info.cache_slots, model.info.context_length)):
        raise InputError(
            f"the longest question with {max_tokens} tokens takes {most} slots, the model has {has}: give a "
            "larger --cache-slots, or fewer --max-tokens"
        )
    rows = evaluate(
        model,
        requests,
        _checks(questions),
        plan.settings,
        max_tokens=max_tokens,
        kept=kept,
        progress=progress,
    )
    return Recommendation(rows, recommend(rows, plan.points), len(questions), plan.points)


def _checks(questions: Sequence[Prompt]) -> Judge:
    """1 for an answer that passes its question's check; figures by kind."""

    def judge(cases: Sequence[Case]) -> Judgement:
        passed: list[float] = []
        kinds: dict[str, list[float]] = {}
        for question, case in zip(questions, cases, strict=True):
            assert question.check is not None
            passed.append(float(question.check.passes(case.answer)))
            kinds.setdefault(question.kind, []).append(passed[-1])
        return Judgement(tuple(passed), {kind: sum(each) / len(each) for kind, each in kinds.items()})

    return judge
