"""Small data folders for tests: conversations of a toy language that is easy to continue."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE
from hamburger_edge.models.distillation.written import write_shard
from hamburger_edge.models.training.data.batches import ARRAYS, Batches, DistilledData, TrainingBatch

END = 2


class DataFiles:
    """Conversations as `distill` stores them."""

    @staticmethod
    def in_memory(
        *,
        roles: list[list[int]],
        ids: list[list[int]] | None = None,
        entropies: list[list[float]] | None = None,
        k: int = 3,
        vocab: int = 97,
        seed: int = 0,
    ) -> DistilledData:
        """Omitted arrays are random; the written token is not always the base's first choice."""
        draw = np.random.default_rng(seed)
        flat = np.concatenate([np.asarray(r, dtype=np.uint8) for r in roles])
        n = len(flat)
        tokens = np.concatenate(ids) if ids is not None else draw.integers(3, vocab, n)
        nats = np.concatenate(entropies) if entropies is not None else draw.exponential(0.5, n)
        top = np.argsort(draw.random((n, vocab)), axis=1)[:, :k]
        weights = -np.sort(draw.exponential(1.0, (n, k)), axis=1)
        return DistilledData(
            starts=np.cumsum([0, *map(len, roles)]).astype(np.int64),
            ids=tokens.astype(np.int32),
            roles=flat,
            entropies=nats.astype(np.float16),
            top_ids=top.astype(np.int32),
            top_log_probabilities=weights.astype(np.float16),
            source={"base": "toy"},
            shards=[],
        )

    @staticmethod
    def write(folder: Path, data: DistilledData, source: dict[str, str] | None = None) -> Path:
        arrays = {name: np.ascontiguousarray(getattr(data, name)) for name in ARRAYS}
        write_shard(folder, "shard", arrays, source or {"base": "toy"})
        return folder


def batches_of(data: DistilledData, numbers: Iterable[int] | None = None, **changes: Any) -> Batches:
    """Of all conversations, or of those that are named: one row, and no merged slots."""
    settings = {"max_group_tokens": 4, "draft_vocab": None, "vocab_size": 97, "rows": 1}
    settings |= {"row_slots": 30, "cuts": None, "seed": 5}
    return Batches(data, list(range(len(data)) if numbers is None else numbers), **settings | changes)


def first_batch(data: DistilledData, numbers: Iterable[int] | None = None, **changes: Any) -> TrainingBatch:
    batches = batches_of(data, numbers, **changes)
    return batches.build(batches.plan(0)[0])


def ladders(conversations: int, *, vocab: int = 97, seed: int = 0) -> DistilledData:
    """Question: a start and a stride, in 5 template tokens. Answer: start, start + stride, ... and the end.

    The "base" is certain of all but the answer's first token, which has probability 0.6.
    """
    draw = np.random.default_rng(seed)
    ids, roles, entropies, certain = [], [], [], []
    for _ in range(conversations):
        start, stride, length = int(draw.integers(40, 60)), int(draw.integers(1, 4)), int(draw.integers(4, 9))
        answer = [*(start + stride * i for i in range(length)), END]
        ids.append([1, start, 3 + stride, 8 + length, 5, *answer])
        roles.append([TEMPLATE] * 5 + [ANSWER] * len(answer))
        entropies.append([0.0] * 5 + [0.7] + [0.01] * (len(answer) - 1))
        certain += [0.99] * 5 + [0.6] + [0.99] * (len(answer) - 1)
    data = DataFiles.in_memory(ids=ids, roles=roles, entropies=entropies, k=2, vocab=vocab, seed=seed)
    data.top_ids[:, 0] = data.ids
    data.top_ids[:, 1] = (data.ids + 1) % vocab
    p = np.asarray(certain)
    data.top_log_probabilities[:] = np.log(np.stack([p, 1 - p], axis=1))
    return data
