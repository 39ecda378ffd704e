"""Scores of a base by itself: of a sequence at once, and in pieces through its cache."""

from __future__ import annotations

import torch

from hamburger_edge.models.architecture.llama import Base, Cached, KVCache, WholeSequence, rotary_tables
from hamburger_edge.models.bases.weights import LoadedBase


def built(loaded: LoadedBase) -> tuple[Base, tuple[torch.Tensor, torch.Tensor]]:
    base = Base(loaded.config).eval()
    base.load_state_dict(loaded.state)
    return base, rotary_tables(loaded.config, loaded.config.context_length)


@torch.no_grad()
def logits_whole(base: Base, tables: tuple[torch.Tensor, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    cos, sin = (table[None, None, : ids.shape[1]] for table in tables)
    features = base(base.embed_tokens(ids), WholeSequence(base.config, cos, sin))
    return base.logits(features[:, :, -1])


@torch.no_grad()
def logits_cached(
    base: Base, tables: tuple[torch.Tensor, torch.Tensor], ids: torch.Tensor, chunks: list[int]
) -> torch.Tensor:
    cache = KVCache(base.config, base.config.num_layers, capacity=ids.shape[1])
    out = []
    for chunk in ids.split(chunks, dim=1):
        stop = cache.used + chunk.shape[1]
        cos, sin = (table[None, None, cache.used : stop] for table in tables)
        features = base(base.embed_tokens(chunk), Cached(base.config, cos, sin, cache))
        cache.used = stop
        out.append(base.logits(features[:, :, -1]))
    return torch.cat(out, dim=1)
