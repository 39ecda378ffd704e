"""The dev sets while training: the share of examples that would come out whole.

One pass over the right answers shows it: a model that prefers the right token at every place gives that
answer in greedy decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger
from hamburger_edge.models.zoo.proofread.making.tokens import Encoded

ROWS = 128
CLEAN = "clean"  # how a set's name begins whose texts are to stay as they are


class DevSets:
    """dev-NAME.npz of a folder."""

    def __init__(self, folder: Path):
        self.sets = {
            file.stem.removeprefix("dev-"): _rows(Encoded.load(file))
            for file in sorted(folder.glob("dev-*.npz"))
        }

    @torch.no_grad()
    def judge(
        self, model: Hamburger, device: torch.device, autocast: Callable[[], AbstractContextManager[Any]]
    ) -> dict[str, float]:
        """Return each set's share that comes out whole, and `worth`: half clean sets', half the others'."""
        found: dict[str, float] = {}
        for name, examples in self.sets.items():
            right = 0
            for first in range(0, len(examples), ROWS):
                right += _whole(model, examples[first : first + ROWS], device, autocast)
            found[name] = round(right / len(examples), 4)
        clean = [share for name, share in found.items() if name.startswith(CLEAN)]
        others = [share for name, share in found.items() if not name.startswith(CLEAN)]
        return {**found, "worth": round(float(np.mean(clean) + np.mean(others)) / 2, 4)}


def _rows(found: Encoded) -> list[tuple[np.ndarray, int]]:
    """Every example's tokens, and how many of them come before its answer."""
    ids = np.split(found.ids.astype(np.int64), found.starts[1:-1])
    return list(zip(ids, found.answers.tolist(), strict=True))


def _whole(
    model: Hamburger,
    examples: list[tuple[np.ndarray, int]],
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> int:
    longest = max(len(ids) for ids, _ in examples)
    tokens = torch.zeros(len(examples), longest, dtype=torch.long)
    asked = torch.zeros_like(tokens, dtype=torch.bool)  # [B, S] the next token is the answer's
    for row, (ids, answer) in enumerate(examples):
        tokens[row, : len(ids)] = torch.from_numpy(ids)
        asked[row, answer - 1 : len(ids) - 1] = True
    tokens, asked = tokens.to(device), asked.to(device)
    ones = torch.ones_like(tokens)
    batch = GroupBatch(tokens[..., None], ones, tokens[..., None], torch.zeros_like(tokens))
    with autocast():
        final: Tensor = model.features(batch)[..., -1, :]
        chosen = torch.full_like(tokens, -1)
        chosen[asked] = model.base.logits(final[asked]).argmax(-1)
    following = tokens.roll(-1, 1)
    wrong = (chosen != following) & asked
    return int((~wrong.any(1)).sum())
