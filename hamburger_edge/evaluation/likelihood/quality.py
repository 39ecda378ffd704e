"""Evaluate models: each answers every prompt at every confidence, and a plain base judges the answers.

    for each model: for each confidence, 1 first: for each prompt: answer, and let the judge read it

At confidence 1 a model decodes plainly. Its loss against the judge then comes from its weights (quantization,
or training of its base). The additional loss below confidence 1 comes from merging.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import Prompt
from hamburger_edge.evaluation.likelihood.base_judge import Judge, JudgedAnswer, ask, prompt_ids
from hamburger_edge.evaluation.likelihood.quality_report import (
    ModelReport,
    QualityReport,
    QualityRow,
    Skipped,
)
from hamburger_edge.loop.settings import Settings
from hamburger_edge.model import Model
from hamburger_edge.support.progress import Progress, no_progress

QUICK_PER_KIND = 2


@dataclass(frozen=True)
class QualityPlan:
    confidences: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7)  # 1 is always added, and comes first
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for confidence in self.confidences:
            self.settings(confidence)
        ordered = tuple(sorted({1.0, *map(float, self.confidences)}, reverse=True))
        object.__setattr__(self, "confidences", ordered)

    def settings(self, confidence: float) -> dict[str, Any]:
        """Return the validated options of an answer."""
        options = {
            "mode": "merge" if confidence < 1 else "plain",
            "confidence": confidence,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }
        Settings.of(options)
        return options


QUICK = QualityPlan((1.0, 0.8), max_tokens=48)


def quick(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the first QUICK_PER_KIND prompts of every kind."""
    kinds: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    return [prompt for several in kinds.values() for prompt in several[:QUICK_PER_KIND]]


class Evaluation:
    """One evaluation: the judge's greedy answers, to which all models' answers are compared."""

    def __init__(
        self, judge: Judge, prompts: Sequence[Prompt], plan: QualityPlan, progress: Progress = no_progress
    ) -> None:
        """Let the judge answer all prompts that fit."""
        self.judge, self.prompts, self.plan, self.progress = judge, prompts, plan, progress
        self._skipped: dict[int, Skipped] = {}  # by prompt number
        options = plan.settings(1.0) | {"temperature": 0.0}
        self.answers = self._answers(judge.name, judge.model, 1.0, options)
        self.row = QualityRow.of(1.0, self.answers, self.answers)

    def run(self, name: str, model: Model) -> ModelReport:
        """Evaluate a model at every confidence."""
        check_tokens(self.judge, self.prompts, name, model)
        rows: list[QualityRow] = []
        for confidence in self.plan.confidences:
            if confidence == 1 and model is self.judge.model and self.plan.temperature == 0:
                rows.append(self.row)
            else:
                answers = self._answers(name, model, confidence, self.plan.settings(confidence))
                rows.append(QualityRow.of(confidence, answers, self.answers))
        return ModelReport.of(name, model.info, rows)

    def report(self, models: list[ModelReport], file: str) -> QualityReport:
        """Return the report. `file` is the name of the prompts' source."""
        kinds = Counter(answer.kind for answer in self.answers.values())
        prompts = {"file": file, "kinds": dict(sorted(kinds.items()))}
        return QualityReport(
            settings=asdict(self.plan),
            prompts=prompts,
            base_name=self.judge.name,
            base_description=self.judge.description,
            base=self.row,
            models=models,
            skipped=list(self._skipped.values()),
        )

    def _answers(
        self, name: str, model: Model, confidence: float, options: dict[str, Any]
    ) -> dict[int, JudgedAnswer]:
        """Answer the prompts that fit; the others count as skipped. The keys are their numbers."""
        stage = f"{name} at {confidence:g}"
        numbers = check_room(self.judge, self.prompts, self.plan, name, model)
        for number in sorted({*range(len(self.prompts))} - {*numbers}):
            kind = self.prompts[number].kind
            names = self._skipped.setdefault(number, Skipped(number, kind, [])).models
            names += [] if name in names else [name]
        answers = {}
        for done, number in enumerate(numbers):
            self.progress(stage, done, len(numbers))
            answers[number] = ask(model, self.judge, self.prompts[number], number, **options)
        self.progress(stage, len(numbers), len(numbers))
        return answers


def check_room(
    judge: Judge, prompts: Sequence[Prompt], plan: QualityPlan, name: str, model: Model
) -> list[int]:
    """Return the numbers of the prompts that fit model and judge with an answer. At least one must fit."""
    infos = (model.info, judge.model.info)
    room = min(min(info.cache_slots, info.context_length) for info in infos)
    needed = [len(prompt_ids(model, prompt.text)) + plan.max_tokens for prompt in prompts]
    numbers = [number for number, slots in enumerate(needed) if slots <= room]
    if not numbers:
        raise InputError(
            f"{name}: no prompt fits its context of {room} slots with {plan.max_tokens} new tokens: "
            "ask for fewer"
        )
    return numbers


def check_tokens(judge: Judge, prompts: Sequence[Prompt], name: str, model: Model) -> None:
    """Raise an error unless the model and the judge tokenize all prompts alike."""
    same = model.info.vocab_size == judge.model.info.vocab_size and all(
        prompt_ids(model, prompt.text) == prompt_ids(judge.model, prompt.text) for prompt in prompts
    )
    if not same:
        raise InputError(
            f"{name} and {judge.name} do not turn text into the same tokens: evaluate them apart"
        )
