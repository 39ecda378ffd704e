"""Evaluate models: each answers every prompt at every confidence, and a plain base judges the answers.

    for each model: for each confidence, 1 first: for each prompt: answer, and let the judge read it

At confidence 1 a model decodes plainly. Its loss against the judge then comes from its weights (quantization,
or training of its base). The additional loss below confidence 1 comes from merging.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.base_judge import Judge, JudgedAnswer, ask, prompt_ids
from hamburger_edge.evaluation.checks import Prompt
from hamburger_edge.evaluation.figures import reliability
from hamburger_edge.evaluation.quality_report import ModelReport, QualityReport, Row
from hamburger_edge.evaluation.spreading import Opener, Question, Workers
from hamburger_edge.loop.settings import Settings
from hamburger_edge.model import Model
from hamburger_edge.support.progress import Progress, no_progress, time_left

Answers = dict[int, JudgedAnswer]  # prompt number -> answer

QUICK_PER_KIND = 2


@dataclass(frozen=True)
class EvalPlan:
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

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


QUICK = EvalPlan((1.0, 0.8), max_tokens=48)


def quick(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the first QUICK_PER_KIND prompts of every kind."""
    kinds: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    return [prompt for several in kinds.values() for prompt in several[:QUICK_PER_KIND]]


class Evaluation:
    """One evaluation: holds the judge's answers and the skipped prompts."""

    def __init__(
        self,
        base: Judge,
        prompts: Sequence[Prompt],
        plan: EvalPlan,
        *,
        models: int = 1,
        judge_is_one: bool = False,
        progress: Progress = no_progress,
        workers: Workers | None = None,
    ) -> None:
        """Let the judge answer all prompts.

        `models`: how many models will run. `judge_is_one`: the judge's model is one of them. Both serve the
        time estimate. `workers`: generate the answers instead of this process.
        """
        self.base, self.prompts, self.plan = base, prompts, plan
        self.progress = progress
        self.workers = workers
        self._ahead: dict[Question, JudgedAnswer] = {}  # workers' answers that no pass has used yet
        self._skipped: dict[int, dict[str, Any]] = {}  # by prompt number
        shared = judge_is_one and plan.greedy  # then its plain answers are the judge's
        self._estimate = _Estimate(models * len(plan.confidences) + (not shared))
        numbers = self._fitting(base.name, base.model)
        self._spread(base.name, numbers, None, {1.0: plan.settings(1.0) | {"temperature": 0.0}})
        self.answers = self._pass(base.name, base.model, numbers, 1.0, greedy=True)
        self.row = Row.of(1.0, self.answers, self.answers, self.answers)

    def run(self, name: str, model: Model, opener: Opener | None = None) -> ModelReport:
        """Evaluate a model at every confidence. Workers open it with `opener`, or use the judge's if None."""
        check_tokens(self.base, self.prompts, name, model)
        rows: list[Row] = []
        plain: Answers = {}
        everything: list[JudgedAnswer] = []
        same = model is self.base.model and self.plan.greedy
        asked = [confidence for confidence in self.plan.confidences if not (same and confidence == 1)]
        numbers = self._fitting(name, model)
        self._spread(name, numbers, opener, {each: self.plan.settings(each) for each in asked})
        for confidence in self.plan.confidences:
            known = confidence == 1 and same
            answers = self.answers if known else self._pass(name, model, numbers, confidence)
            plain = plain or answers  # the first confidence is 1
            rows.append(Row.of(confidence, answers, plain, self.answers))
            everything += answers.values()
        return ModelReport.of(name, model, rows, reliability(everything))

    def report(self, models: list[ModelReport], file: str) -> QualityReport:
        """Return the report. `file` is the name of the prompts' source."""
        kinds = Counter(answer.kind for answer in self.answers.values())
        prompts = {"file": file, "kinds": dict(sorted(kinds.items()))}
        return QualityReport(
            settings=asdict(self.plan),
            prompts=prompts,
            base_name=self.base.name,
            base_description=self.base.description,
            base=self.row,
            models=models,
            skipped=list(self._skipped.values()),
        )

    def _pass(
        self, name: str, model: Model, numbers: list[int], confidence: float, *, greedy: bool = False
    ) -> Answers:
        """Answer the prompts of these numbers once."""
        options = self.plan.settings(confidence) | ({"temperature": 0.0} if greedy else {})
        stage = f"{name} at {confidence:g}"
        answers: Answers = {}
        for done, number in enumerate(numbers):
            self.progress(stage, done, len(numbers), self._estimate.left(numbers[done:], numbers))
            begin = time.perf_counter()
            known = self._ahead.pop((confidence, number), None)
            prompt = self.prompts[number]
            answers[number] = known or ask(model, self.base, prompt, number, **options)
            self._estimate.took(number, time.perf_counter() - begin)
        self.progress(stage, len(numbers), len(numbers), "")
        self._estimate.passes -= 1
        return answers

    def _spread(
        self, name: str, numbers: list[int], opener: Opener | None, options: dict[float, dict[str, Any]]
    ) -> None:
        """Let the workers, if any, answer the questions of the following passes."""
        if self.workers is None:
            return
        questions = [(confidence, number) for confidence in options for number in numbers]
        tick = lambda done: self.progress(name, done, len(questions))  # noqa: E731
        self._ahead = self.workers.answers(opener, self.prompts, options, questions, tick)

    def _fitting(self, name: str, model: Model) -> list[int]:
        """Return the prompt numbers from `check_room`, and record the others as skipped."""
        numbers = check_room(self.base, self.prompts, self.plan, name, model)
        for number in sorted({*range(len(self.prompts))} - {*numbers}):
            prompt = self.prompts[number]
            needed = len(prompt_ids(model, prompt.text)) + self.plan.max_tokens
            entry = {
                "prompt": number,
                "kind": prompt.kind,
                "needs": needed,
                "has": _room(self.base, model),
                "models": [],
            }
            models = self._skipped.setdefault(number, entry)["models"]
            models += [] if name in models else [name]
        return numbers


def _room(base: Judge, model: Model) -> int:
    """Return the slots that both this model and the judge have for a prompt and its answer."""
    return min(min(each.info.cache_slots, each.info.context_length) for each in (model, base.model))


def check_room(base: Judge, prompts: Sequence[Prompt], plan: EvalPlan, name: str, model: Model) -> list[int]:
    """Return the numbers of the prompts that fit model and judge with an answer. At least one must fit."""
    has = _room(base, model)
    needed = [len(prompt_ids(model, prompt.text)) + plan.max_tokens for prompt in prompts]
    numbers = [number for number, slots in enumerate(needed) if slots <= has]
    if not numbers:
        raise InputError(
            f"{name}: no prompt fits its context of {has} slots with {plan.max_tokens} new tokens: "
            "ask for fewer"
        )
    return numbers


def check_tokens(base: Judge, prompts: Sequence[Prompt], name: str, model: Model) -> None:
    """Raise an error unless the model and the judge tokenize all prompts alike."""
    judged = base.model
    same = model.info.vocab_size == judged.info.vocab_size and all(
        prompt_ids(model, prompt.text) == prompt_ids(judged, prompt.text) for prompt in prompts
    )
    if not same:
        raise InputError(f"{name} and {base.name} do not turn text into the same tokens: evaluate them apart")


class _Estimate:
    """Estimates the remaining time from the mean seconds of each prompt."""

    def __init__(self, passes: int) -> None:
        self.passes = passes  # not yet finished
        self._seconds: dict[int, list[float]] = {}

    def took(self, number: int, seconds: float) -> None:
        self._seconds.setdefault(number, []).append(seconds)

    def left(self, rest: Sequence[int], everything: Sequence[int]) -> str:
        if sum(map(len, self._seconds.values())) < 3:
            return ""
        means = {number: sum(took) / len(took) for number, took in self._seconds.items()}
        unknown = sum(means.values()) / len(means)
        seconds = sum(means.get(number, unknown) for number in rest)
        seconds += (self.passes - 1) * sum(means.get(number, unknown) for number in everything)
        return time_left(seconds)
