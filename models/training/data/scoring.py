"""A base's entropy and likeliest tokens at every token of given answers.

Distilled answers already have these, since their base wrote them. The tuned base reads other answers in one
pass, one token per slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.distillation.logits import likeliest, parts, uncertainty
from hamburger_edge.models.distillation.shard_files import ARRAYS
from hamburger_edge.models.training.data.batches import Batches, DistilledData
from hamburger_edge.support.progress import Progress, no_progress


@torch.no_grad()
def score(
    model: Hamburger,
    data: DistilledData,
    *,
    rows: int,
    row_slots: int,
    top_k: int = 16,
    autocast: AbstractContextManager[Any],
    progress: Progress = no_progress,
) -> dict[str, np.ndarray]:
    """Return a shard's arrays for the same conversations; tokens outside answers keep an entropy of 0."""
    device = next(model.parameters()).device
    scored: dict[str, np.ndarray] = {
        "starts": data.starts,
        "ids": data.ids,
        "roles": data.roles,
        "entropies": np.zeros(len(data.ids), dtype=np.float16),
        "top_ids": np.repeat(data.ids[:, None], top_k, axis=1),
        "top_log_probabilities": np.full((len(data.ids), top_k), -np.inf, dtype=np.float16),
    }
    scored["top_log_probabilities"][:, 0] = 0
    done = 0
    for numbers in _portions(data, rows * row_slots):
        batches = Batches(
            data,
            numbers,
            max_group_tokens=1,
            draft_vocab=None,
            vocab_size=model.config.base.vocab_size,
            rows=len(numbers),
            row_slots=row_slots,
            cuts=None,
            seed=0,
        )
        [plan] = batches.plan(0)
        batch = batches.build(plan).to(device)
        with autocast:
            features = model.features(batch.groups)[..., -1, :]  # [B, S, d]
            states = features[batch.groups.target_sizes > 0]  # [G, d]
        for here in parts(len(states), model.config.base.vocab_size):
            with autocast:
                logits = model.base.logits(states[here]).float()  # [n, vocab]
            normalisers, entropies = uncertainty(logits)
            (values, ids), at = likeliest(logits, top_k), batch.starts[here]
            scored["entropies"][at] = entropies.cpu().numpy()
            scored["top_ids"][at] = ids.cpu().numpy()
            scored["top_log_probabilities"][at] = (values - normalisers[:, None]).cpu().numpy()
        done += len(numbers)
        progress("scoring", done, len(data))
    return scored


def some_of(data: DistilledData, numbers: Sequence[int]) -> DistilledData:
    """Return these conversations only."""
    spans = [np.arange(*data.starts[number : number + 2]) for number in numbers]
    tokens = np.concatenate(spans)
    arrays = {name: getattr(data, name)[tokens] for name in ARRAYS if name != "starts"}
    return replace(data, starts=np.cumsum([0, *map(len, spans)]), **arrays)


def _portions(data: DistilledData, tokens: int) -> Iterator[list[int]]:
    """Yield all conversation numbers in order, up to this many tokens at a time."""
    numbers: list[int] = []
    there = 0
    for number, length in enumerate(np.diff(data.starts).tolist()):
        if numbers and there + length > tokens:
            yield numbers
            numbers, there = [], 0
        numbers.append(number)
        there += length
    if numbers:
        yield numbers
