"""Generate answers with the tuned base, so that the graft also learns from the base's own outputs.

Each shard holds the answers to PORTION prompts. A resumed run repeats at most one shard.
"""

from __future__ import annotations

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

ROWS, PORTION = 64, 512  # prompts per batch; prompts per shard


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
