"""The progress interface of long work, shared by reporters and displays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

LogCallback = Callable[[str], None]  # called with one readable line
PARTS = 1000  # `total` of work in several stages
EARLY = 0.05  # share of the work that must be done before the time left is estimated


class Progress(Protocol):
    """A callback for progress; the command line shows a bar (`support.terminal.ProgressBar`)."""

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """Report `done` of `total` in a stage ("loading", "tracing base", ...); total 0 means unknown."""


def no_progress(stage: str, done: int, total: int, note: str = "", /) -> None:
    """Ignore progress."""


class StagedProgress:
    """Report stages as parts of one work: `done` and `total` count all of it, the note is the time left.

    `shares` lists all stages in their order with the time that each usually takes, in any unit. Other stages
    (a download) are reported as they are.
    """

    def __init__(
        self, progress: Progress, shares: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.progress, self.clock = progress, clock
        self.whole = sum(shares.values())
        self.begins: dict[str, float] = {}
        for stage in shares:
            self.begins[stage] = sum(shares[earlier] for earlier in self.begins)
        self.shares, self.began, self.reached = shares, clock(), 0.0

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        if stage not in self.begins:
            self.progress(stage, done, total, note)
            if not self.reached:  # its time is not in the shares
                self.began = self.clock()
            return
        inside = min(done / total, 1.0) if total else 0.0
        reached = (self.begins[stage] + inside * self.shares[stage]) / self.whole
        self.reached = max(self.reached, reached)
        left = note
        if not note and self.reached >= EARLY:
            passed = self.clock() - self.began
            left = time_left(passed * (1 - self.reached) / self.reached)
        self.progress(stage, int(PARTS * self.reached), PARTS, left)


def time_left(seconds: float) -> str:
    """Format the remaining time for a note."""
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
