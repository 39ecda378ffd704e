"""Logits of many rows over a large vocabulary, a few rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor

LOGITS_AT_ONCE = 1 << 24  # 64 rows of 262,144


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
