"""The token ids behind the scores of the base and of micro steps, and draws among weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import Floats

Ints = npt.NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)


class TopToken(NamedTuple):
    token: int
    logprob: float  # natural logarithm of its probability


class Head:
    """The token id of each score's index, and the constant changes of scores (bias and bans)."""

    def __init__(self, changes: Mapping[int, float], vocab_size: int, draft_vocab: Ints | None) -> None:
        self.size = vocab_size if draft_vocab is None else int(draft_vocab.size)
        self._tokens = draft_vocab
        self.order: Ints | None = None  # indices sorted by token id, if the draft vocabulary is not
        if draft_vocab is not None:
            self._index = np.full(vocab_size, -1, dtype=np.int64)
            self._index[draft_vocab] = np.arange(draft_vocab.size)
            if (np.diff(draft_vocab) < 0).any():
                self.order = np.argsort(draft_vocab)
        if changes and max(changes) >= vocab_size:
            raise InputError(f"token {max(changes)} in logit_bias is not in the vocabulary of {vocab_size}")
        tokens, index = self.locate(np.fromiter(changes, dtype=np.int64))
        self.changed = index if index.size else None
        self.change = np.array([changes[token] for token in tokens.tolist()], dtype=np.float32)
        self.banned = index[np.isinf(self.change)]
        self.usable = self.banned.size < self.size

    def token(self, index: int) -> int:
        return index if self._tokens is None else int(self._tokens[index])

    def spread(self, scores: Floats, vocab_size: int) -> Floats:
        """Return this head's scores as scores [vocab], minus infinity elsewhere."""
        if self._tokens is None:
            return scores.copy()
        spread = np.full(vocab_size, -np.inf, dtype=np.float32)
        spread[self._tokens] = scores
        return spread

    def gather(self, values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return this head's part of scores or of a mask, [vocab]."""
        return values if self._tokens is None else values[self._tokens]

    def locate(self, tokens: Ints) -> tuple[Ints, Ints]:
        """Return those tokens that this head can choose, and their indices."""
        if self._tokens is None:
            return tokens, tokens
        index = self._index[tokens]
        return tokens[index >= 0], index[index >= 0]


def nucleus_cut(weights: Floats, top_p: float) -> np.float32:
    """Return the smallest weight in the nucleus: the fewest likeliest tokens with `top_p` of the total."""
    total = weights.sum(dtype=np.float64)
    # All weights below this floor sum to less than (1 - top_p) * total: only the few above it need sorting.
    floor = (1 - top_p) * total / weights.size
    likely = np.sort(weights[weights >= floor])[::-1]
    inside = np.cumsum(likely.astype(np.float64))
    last = int(np.searchsorted(inside, top_p * total))
    return np.float32(likely[min(last, likely.size - 1)])


def pick(weights: Floats, draw: float) -> tuple[int, float]:
    """Return the index where a draw in [0, 1) falls, and its share: find the block, then the weight."""
    block = 256
    sums = np.add.reduceat(weights, np.arange(0, weights.size, block), dtype=np.float64)
    edges = np.cumsum(sums)
    total = edges[-1]
    # rounding may put the draw on the upper edge: then take the last nonzero weight
    number = min(int(np.searchsorted(edges, draw * total, side="right")), int(np.flatnonzero(sums)[-1]))
    inside = weights[number * block : (number + 1) * block].astype(np.float64)
    reached = np.cumsum(inside) + (edges[number] - sums[number])
    index = min(int(np.searchsorted(reached, draw * total, side="right")), int(np.flatnonzero(inside)[-1]))
    return number * block + index, float(inside[index] / total)


def top_tokens(weights: Floats, count: int) -> tuple[TopToken, ...]:
    """Return the `count` highest weights of the whole vocabulary that are above 0, as log probabilities."""
    if not count:
        return ()
    least = np.partition(weights, -count)[-count] if count < weights.size else np.float32(0)
    tokens = np.flatnonzero((weights >= least) & (weights > 0))
    tokens = tokens[np.argsort(-weights[tokens], kind="stable")][:count]
    logs = np.log(weights[tokens] / weights.sum(dtype=np.float64))
    return tuple(map(TopToken, tokens.tolist(), logs.tolist()))
