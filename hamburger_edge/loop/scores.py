"""Spaces of scores: which tokens a base's or a micro step's scores are of, and draws from among them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import Floats

Ints = npt.NDArray[np.int64]


class Head:
    """One space of scores: which token each index means, and the changes that never vary."""

    def __init__(self, changes: Mapping[int, float], vocab_size: int, draft_vocab: Ints | None) -> None:
        self.size = vocab_size if draft_vocab is None else int(draft_vocab.size)
        self._tokens = draft_vocab
        self._ordered = draft_vocab
        self.order: Ints | None = (
            None  # index by rising token id, where a draft vocabulary is ranked otherwise
        )
        if draft_vocab is not None:
            self._index = np.full(vocab_size, -1, dtype=np.int64)
            self._index[draft_vocab] = np.arange(draft_vocab.size)
            if (np.diff(draft_vocab) < 0).any():
                self.order = np.argsort(draft_vocab)
                self._ordered = draft_vocab[self.order]
        if changes and max(changes) >= vocab_size:
            raise InputError(
                f"token {max(changes)} in suppress_tokens or logit_bias is not in the vocabulary of "
                f"{vocab_size}"
            )
        tokens, index = self.locate(np.fromiter(changes, dtype=np.int64))
        self.changed = index if index.size else None
        self.change = np.array([changes[token] for token in tokens.tolist()], dtype=np.float32)
        self.banned = index[np.isinf(self.change)]
        self.usable = self.banned.size < self.size

    def token(self, index: int) -> int:
        return index if self._tokens is None else int(self._tokens[index])

    def ordered_token(self, index: int) -> int:
        return index if self._ordered is None else int(self._ordered[index])

    def locate(self, tokens: Ints) -> tuple[Ints, Ints]:
        """The tokens that this head can choose, and their indices."""
        if self._tokens is None:
            return tokens, tokens
        index = self._index[tokens]
        return tokens[index >= 0], index[index >= 0]


def nucleus_cut(weights: Floats, top_p: float) -> np.float32:
    """The smallest weight inside the smallest set of likeliest tokens that holds `top_p` of the whole."""
    total = weights.sum(dtype=np.float64)
    # All tokens below this floor together hold less than 1 - top_p: the nucleus is above it, and few are.
    floor = (1 - top_p) * total / weights.size
    likely = np.sort(weights[weights >= floor])[::-1]
    inside = np.cumsum(likely.astype(np.float64))
    last = int(np.searchsorted(inside, top_p * total))
    return np.float32(likely[min(last, likely.size - 1)])


def pick(weights: Floats, draw: float) -> tuple[int, float]:
    """Where a draw in [0, 1) falls among the weights, and that one's share: by block, then inside it."""
    block = 256
    sums = np.add.reduceat(weights, np.arange(0, weights.size, block), dtype=np.float64)
    edges = np.cumsum(sums)
    total = edges[-1]
    # rounding may put the draw on an upper edge: the last index with any weight takes it
    number = min(int(np.searchsorted(edges, draw * total, side="right")), int(np.flatnonzero(sums)[-1]))
    inside = weights[number * block : (number + 1) * block].astype(np.float64)
    reached = np.cumsum(inside) + (edges[number] - sums[number])
    index = min(int(np.searchsorted(reached, draw * total, side="right")), int(np.flatnonzero(inside)[-1]))
    return number * block + index, float(inside[index] / total)
