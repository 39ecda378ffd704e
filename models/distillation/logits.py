"""Logits of many rows over a large vocabulary, a few rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor

LOGITS_AT_ONCE = 1 << 24  # 64 rows of 262,144
CHUNK = 256  # of a row: its largest values are in the chunks with the largest maxima


def parts(rows: int, vocab: int) -> list[slice]:
    """Cut rows of logits over a vocabulary into parts of at most LOGITS_AT_ONCE."""
    step = max(1, LOGITS_AT_ONCE // vocab)
    return [slice(start, start + step) for start in range(0, rows, step)]


def uncertainty(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the normaliser and entropy of each row of logits [B, vocab], both [B]."""
    normalisers, entropies = [], []
    cpu = logits.device.type == "cpu"
    for part in logits.split(4 if cpu else len(logits)):  # small enough for the CPU's cache
        top = part.amax(-1, keepdim=True)
        below = part - top
        weights = below.exp()
        total = weights.sum(-1)
        normalisers.append(total.log() + top[:, 0])
        entropies.append(total.log() - (weights * below).sum(-1) / total)
    return torch.cat(normalisers), torch.cat(entropies)


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and ids of the largest logits of each row [B, vocab], descending, both [B, count].

    `topk` of all of a large vocabulary takes longer than the product that made it.
    """
    whole = logits.shape[1] // CHUNK
    if whole <= 2 * count:
        values, ids = logits.topk(count)
        return values, ids
    chunks = logits[:, : whole * CHUNK].unflatten(1, (whole, CHUNK))
    chosen = chunks.amax(-1).topk(count).indices  # [B, count]
    ids = (chosen[..., None] * CHUNK + torch.arange(CHUNK, device=logits.device)).flatten(1)
    rest = torch.arange(whole * CHUNK, logits.shape[1], device=logits.device).expand(len(logits), -1)
    ids = torch.cat([ids, rest], dim=1)
    values, places = logits.gather(1, ids).topk(count)
    return values, ids.gather(1, places)
