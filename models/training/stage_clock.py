"""The steps of a running stage, their pace, and when saves and reports are due."""

from __future__ import annotations

from time import monotonic

from hamburger_edge.models.training.updates.step_limit import StepLimit


class StageClock:
    """Counts the steps of a stage that begins or continues now."""

    def __init__(self, steps: int, done: int, limit: StepLimit) -> None:
        self.steps, self.done, self.limit = steps, done, limit
        self.first = done + 1  # step of this process, whose time does not count: it warms up
        self.now = self.shown_at = self.saved_at = monotonic()
        self.spent = 0.0  # seconds of the steps after the first
        self.step_seconds = 0.0

    def count(self, began: float) -> None:
        """Count a step that took the time since `began`, and fit the number of steps to the limit."""
        self.done += 1
        self.now = monotonic()
        if self.done == self.first:
            self.step_seconds = self.now - began
            return
        self.spent += self.now - began
        self.step_seconds = self.spent / (self.done - self.first)
        self.steps = self.limit.after(self.done, self.step_seconds)

    @property
    def ended(self) -> bool:
        return self.done == self.steps

    @property
    def seconds_left(self) -> float:
        return (self.steps - self.done) * self.step_seconds

    def save_is_due(self, minutes: float) -> bool:
        return self.now - self.saved_at > 60 * minutes
