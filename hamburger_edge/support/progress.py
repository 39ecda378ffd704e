"""The progress interface of long work, shared by reporters and displays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

LogCallback = Callable[[str], None]  # called with one readable line


class Progress(Protocol):
    """A callback for progress; the command line shows a bar (`support.terminal.ProgressBar`)."""

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """Report `done` of `total` in a stage ("loading", "tracing base", ...); total 0 means unknown."""


def no_progress(stage: str, done: int, total: int, note: str = "", /) -> None:
    """Ignore progress."""


def time_left(seconds: float) -> str:
    """Format the remaining time for a note."""
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
