"""Micro steps: the scores of a group's further tokens, after one row of the base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter

from hamburger_edge.loop.answer_run import AnswerRun, BaseRow
from hamburger_edge.loop.backend import Floats


class MicroSteps:
    """The micro decoder in one group."""

    def __init__(self, run: AnswerRun, row: BaseRow) -> None:
        self._run, self._row = run, row
        self._judges_after = run.info.stop_rule == "after"
        self._read = 0  # number of tokens that the micro decoder has read
        self.p_stop = row.p_stop  # of the newest scores

    def behind(self, tokens: int) -> int:
        """Return how many of a group's tokens the micro decoder has not read."""
        return tokens - self._read

    def scores(self, tokens: Sequence[int]) -> tuple[Floats, float]:
        """Return the scores of the token after these, and the probability of the highest."""
        backend, stats = self._run.text.backend, self._run.stats
        begin = perf_counter()
        if not self._read:
            backend.micro_begin(self._row.features)
        chance = 1 - self.p_stop  # by stop rule "before" the last p_stop is about this token
        for token in tokens[self._read :]:
            logits, p_stop = backend.micro(token)
        stats.micro_s += perf_counter() - begin
        stats.micro_steps += len(tokens) - self._read
        self._read, self.p_stop = len(tokens), float(p_stop)
        return logits, 1 - self.p_stop if self._judges_after else chance


def log_chance(chance: float) -> float:
    """Return the log-probability to record for a drafted token that may be merged unchecked."""
    return math.log(max(chance, 1e-9))
