"""How many steps of a stage fit into its seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic

BESIDE = 1.05  # time of a stage relative to its steps: held-out text is read, too


class StepLimit:
    """The steps of a stage that begins now: `planned`, or fewer if `seconds` do not suffice."""

    def __init__(self, planned: int, seconds: float = math.inf, clock: Callable[[], float] = monotonic):
        self.planned, self.clock = planned, clock
        self.ends, self.reserved = clock() + seconds, 0.0

    def reserve(self, seconds: float) -> None:
        """Keep so many seconds for the look at the model that ends the stage."""
        self.ends += self.reserved - seconds
        self.reserved = seconds

    def after(self, done: int, pace: float) -> int:
        """Return the stage's number of steps after `done` of them, at `pace` seconds a step."""
        left = self.ends - self.clock()
        if left <= 0:
            return done
        return min(self.planned, done + math.floor(min(left / (BESIDE * max(pace, 1e-9)), self.planned)))
