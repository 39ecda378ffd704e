"""The certainty of an answer: the calibrated probability that the whole answer is right.

    z = offset + mean * (mean of the log-probabilities) + lowest * (the lowest of them) + length * log(tokens)
    certainty = 1 / (1 + exp(-z))

The log-probabilities are those of the answer's tokens, end token included, as the base scored them: without
temperature, penalties, biases and truncation, among the tokens that the grammar allows. `Sampler.logprobs`
records them. A checkpoint stores the four coefficients; `eval --certainty` fits them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from hamburger_edge.errors import ConfigError
from hamburger_edge.support.repetition import four_gram_repetition

LOWEST_LOGPROB = -20.0  # lower ones count as this

# An answer is a loop if at least REPEATED of the 4-grams among its last TAIL tokens are copies of others
# there. A shorter answer is none.
TAIL = 32
REPEATED = 0.5

CUT = ("length", "context", "cancelled")  # finish reasons of answers that are not whole


class Evidence(NamedTuple):
    """What an answer's certainty is computed from."""

    mean_logprob: float
    lowest_logprob: float
    tokens: int

    @classmethod
    def of(cls, logprobs: Sequence[float]) -> Evidence:
        """Summarize the log-probabilities of an answer's tokens, at least one."""
        bounded = [max(LOWEST_LOGPROB, logprob) for logprob in logprobs]
        return cls(math.fsum(bounded) / len(bounded), min(bounded), len(bounded))

    @property
    def features(self) -> tuple[float, float, float]:
        """In the order of the coefficients after `offset`."""
        return self.mean_logprob, self.lowest_logprob, math.log(self.tokens)


@dataclass(frozen=True)
class Certainty:
    """The coefficients of a model's certainty."""

    offset: float
    mean: float
    lowest: float
    length: float

    def __post_init__(self) -> None:
        for item in fields(self):
            if not abs(value := getattr(self, item.name)) <= 1000:  # not finite ones either
                raise ConfigError(f"certainty.{item.name} must be a number from -1000 to 1000, got {value}")

    def of(self, evidence: Evidence) -> float:
        weights = (self.mean, self.lowest, self.length)
        z = self.offset + sum(w * x for w, x in zip(weights, evidence.features, strict=True))
        return 1 / (1 + math.exp(-z)) if z >= 0 else 1 - 1 / (1 + math.exp(min(z, 700)))


def is_loop(tokens: Sequence[int]) -> bool:
    """Whether the end of an answer repeats itself."""
    return len(tokens) >= TAIL and four_gram_repetition(tokens[-TAIL:]) >= REPEATED
