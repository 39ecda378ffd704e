"""Generate answers with the tuned base, so that the graft also learns from the base's own outputs.

Each shard holds the answers to PORTION prompts. A resumed run repeats at most one shard.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hamburger_edge.models.architecture.llama import Base
from hamburger_edge.models.distillation.conversations import (
    Conversation,
    DistillSettings,
    ShardRun,
    TurnTokens,
)
from hamburger_edge.models.distillation.data_manifest import NAME, Shard, read_data_manifest
from hamburger_edge.models.distillation.distill import to_arrays
from hamburger_edge.models.distillation.generation import BatchGenerator
from hamburger_edge.models.distillation.written import write_shard
from hamburger_edge.models.training.speed import faster_type
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.tuning.planning import answered_within
from hamburger_edge.tuning.task import Task
from hamburger_edge.tuning.tune_recipe import TuneRecipe
from hamburger_edge.tuning.tune_run import TuneRun

ROWS, PORTION = 64, 512  # prompts per batch; prompts per shard


def answer_prompts(
    base: Base,
    source: Mapping[str, Any],
    folder: Path,
    probe: Path,
    recipe: TuneRecipe,
    task: Task,
    run: TuneRun,
) -> None:
    """Write the answers to evenly spaced training prompts: the recipe's number, or as many as time allows."""
    encoder, train = task.dataset.encoder, task.split.train

    def answer(into: Path, prompts: int, progress: Progress) -> None:
        numbers = train[:: max(1, len(train) // prompts)][:prompts]
        limited = {"of": wanted} if prompts < wanted else {}
        write_answers(
            base,
            [encoder.question(task.dataset.examples.examples[number]) for number in numbers],
            into,
            {**source, "asked": len(numbers), **limited},
            end=encoder.end,
            longest=task.dataset.longest,
            progress=progress,
        )

    def probe_answers(prompts: int) -> None:
        shutil.rmtree(probe, ignore_errors=True)
        answer(probe, prompts, no_progress)
        shutil.rmtree(probe)

    wanted = min(recipe.more_answers, len(train))
    begun = _begun(folder, source, wanted)
    prompts = begun or wanted
    if run.budget is not None and not begun:
        prompts = answered_within(run.seconds("answering", recipe), wanted, probe_answers)
    if prompts < wanted:
        run.report(f"the tuned base answers {prompts} of {wanted} prompts, from which the graft learns, too")
    answer(folder, prompts, run.progress)


def _begun(folder: Path, source: Mapping[str, Any], wanted: int) -> int:
    """Return how many of the prompts an earlier run had time for; 0: it wrote no answers yet."""
    if not (folder / NAME).exists():
        return 0
    before = dict(read_data_manifest(folder).source)
    prompts: int = before.pop("asked", 0)
    return prompts if before.pop("of", prompts) == wanted and before == source else 0


def write_answers(
    base: Base,
    questions: Sequence[Sequence[int]],
    folder: Path,
    source: Mapping[str, Any],
    *,
    end: int,
    longest: int,
    dtype: torch.dtype | None = None,
    progress: Progress = no_progress,
) -> None:
    """Write the greedy answers to `questions` as a data folder.

    A question is the tokens before its answer. Answers that do not end within `longest` tokens are left out.
    Without a `dtype` the device computes in the one that it multiplies faster.
    """
    dtype = dtype or faster_type(base.norm.weight.device.type)
    capacity = longest + max(map(len, questions))
    settings = DistillSettings(tokens=0, rows=ROWS, max_answer=longest, context=capacity, max_repetition=1)
    generator = BatchGenerator(base, capacity, dtype)
    generator.set_prefix([])
    run = ShardRun(generator, settings, TurnTokens((), (), (), end))
    shards = _written(folder, source)
    for first in range(PORTION * len(shards), len(questions), PORTION):
        portion = questions[first : first + PORTION]
        answered = run.run(
            [_conversation(*numbered) for numbered in enumerate(portion)], set(), lambda tokens: None
        )
        ended = [conversation for conversation in answered if conversation.ids[-1] == end]
        name = f"answers-{len(shards):04d}"
        shards = write_shard(folder, name, to_arrays(ended, settings.top_k), source, shards).shards
        progress("answering", first + len(portion), len(questions))


def _written(folder: Path, source: Mapping[str, Any]) -> tuple[Shard, ...]:
    """Return the shards of an earlier run, up to the first incomplete one."""
    if not (folder / NAME).exists() or (there := read_data_manifest(folder)).source != source:
        return ()
    whole = [shard.whole(folder) for shard in there.shards]
    return there.shards[: [*whole, False].index(False)]


def _conversation(number: int, question: Sequence[int]) -> Conversation:
    return Conversation(
        number=number,
        uniforms=np.zeros(0),
        given=None,
        turns=1,
        temperature=0.0,
        penalty=0.0,
        question=tuple(question),
    )
