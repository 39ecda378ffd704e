"""The certainty of an answer: the calibrated probability that the whole answer is right.

    nll = -(sum of the log-probabilities of the answer's tokens, end token included)
    certainty = 1 / (1 + exp(slope * log(nll + FLOOR) - offset))

An answer that was cut, is empty or repeats itself at its end has certainty 0.

The log-probabilities are those of the base's own scores: without temperature, penalties, biases and
truncation, among the tokens that the grammar allows. `Sampler.logprobs` records them. A checkpoint stores
both coefficients; `eval --certainty` fits them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hamburger_edge.errors import ConfigError
from hamburger_edge.support.repetition import four_gram_repetition

FLOOR = 0.05  # keeps the certainty of an answer with probability 1 below 1
LOWEST_LOGPROB = -20.0  # of a token; lower ones count as this

# An answer is a loop if at least REPEATED of the 4-grams among its last TAIL tokens are copies of others
# there. A shorter answer is none.
TAIL = 32
REPEATED = 0.5

LARGEST = 1e5  # coefficient

CUT = ("length", "context", "cancelled")  # finish reasons of cut answers


@dataclass(frozen=True)
class Certainty:
    """The coefficients of a model's certainty."""

    offset: float
    slope: float  # of the logarithm of `nll`; at least 0

    def __post_init__(self) -> None:
        if not abs(self.offset) <= LARGEST:  # NaN is refused, too
            raise ConfigError(f"certainty.offset must be from {-LARGEST:g} to {LARGEST:g}, got {self.offset}")
        if not 0 <= self.slope <= LARGEST:
            raise ConfigError(f"certainty.slope must be from 0 to {LARGEST:g}, got {self.slope}")

    def of(self, nll: float) -> float:
        """Return the certainty of an answer with this negative log-likelihood."""
        z = self.slope * feature(nll) - self.offset
        return 1 / (1 + math.exp(min(z, 700)))


def feature(nll: float) -> float:
    return math.log(nll + FLOOR)


def negative_log_likelihood(logprobs: Sequence[float]) -> float:
    """Return `nll` of an answer from the log-probabilities of its tokens, at least 0 despite rounding."""
    return max(0.0, -math.fsum(max(LOWEST_LOGPROB, logprob) for logprob in logprobs))


def is_whole(tokens: Sequence[int], finish_reason: str | None) -> bool:
    """Whether an answer ended by itself, with tokens, and does not repeat itself at its end."""
    return finish_reason is not None and finish_reason not in CUT and bool(tokens) and not is_loop(tokens)


def is_loop(tokens: Sequence[int]) -> bool:
    """Whether the end of an answer repeats itself."""
    return len(tokens) >= TAIL and four_gram_repetition(tokens[-TAIL:]) >= REPEATED
