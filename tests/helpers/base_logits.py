"""Logits of a base: of a whole sequence in one call, and in pieces through its KV cache."""

from __future__ import annotations

import torch

from hamburger_edge.models.architecture.llama import (
    Base,
    Cached,
    KVCache,
    Rotary,
    WholeSequence,
    rotary_tables,
)
from hamburger_edge.models.bases.weights import LoadedBase


def built(loaded: LoadedBase) -> tuple[Base, Rotary]:
    base = Base(loaded.config).eval()
    base.load_state_dict(loaded.state)
    return base, rotary_tables(loaded.config, loaded.config.context_length)


@torch.no_grad()
def logits_whole(base: Base, rotary: Rotary, ids: torch.Tensor) -> torch.Tensor:
    features = base(base.embed(ids), WholeSequence(base.config, rotary[None, None, : ids.shape[1]]))
    return base.logits(features[:, :, -1])


@torch.no_grad()
def logits_cached(base: Base, rotary: Rotary, ids: torch.Tensor, chunks: list[int]) -> torch.Tensor:
    cache = KVCache(base.config, base.config.num_layers, capacity=ids.shape[1])
    out = []
    for chunk in ids.split(chunks, dim=1):
        stop = cache.used + chunk.shape[1]
        attend = Cached(base.config, rotary[None, None, cache.used : stop], cache, chunk.shape[1])
        features = base(base.embed(chunk), attend)
        cache.used = stop
        out.append(base.logits(features[:, :, -1]))
    return torch.cat(out, dim=1)
