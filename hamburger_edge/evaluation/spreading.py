"""Distribute an evaluation's questions to the workers of a cluster. Each opens judge and model once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hamburger_edge.evaluation.base_judge import Judge, JudgedAnswer, ask
from hamburger_edge.evaluation.checks import Prompt
from hamburger_edge.model import Model
from hamburger_edge.models.distillation.cluster import Cluster

Opener = Callable[[], Model]
Question = tuple[float, int]  # confidence, prompt number


@dataclass
class Workers:
    cluster: Cluster
    open_base: Callable[[], Judge]  # called in each worker

    def answers(
        self,
        model: Opener | None,
        prompts: Sequence[Prompt],
        options: dict[float, dict[str, Any]],
        questions: list[Question],
        tick: Callable[[int], None],
    ) -> dict[Question, JudgedAnswer]:
        """Answer `questions`. `model` None: the judge's own model.

        `options` maps a confidence to its options. `tick` receives the number of answers so far.
        """
        build = functools.partial(_worker, self.open_base, model, prompts, options)
        left = iter(questions)
        found: dict[Question, JudgedAnswer] = {}
        for question, answer in self.cluster.results(build, lambda: next(left, None)):
            found[question] = answer
            tick(len(found))
        return found


def _worker(
    open_base: Callable[[], Judge],
    model: Opener | None,
    prompts: Sequence[Prompt],
    options: dict[float, dict[str, Any]],
) -> Callable[[Question], JudgedAnswer]:
    base = open_base()
    opened = base.model if model is None else model()

    def answer(question: Question) -> JudgedAnswer:
        confidence, number = question
        return ask(opened, base, prompts[number], number, **options[confidence])

    return answer
