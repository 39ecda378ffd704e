"""How long work says how far it is: one form for all who report it and all who show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

LogCallback = Callable[[str], None]  # one line for people to read


class Progress(Protocol):
    """Called now and then; the command line shows it as a bar (`support.terminal.ProgressBar`)."""

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """`done` of `total` of a stage ("loading", "tracing base", ...); a total of 0 cannot be counted."""


def no_progress(stage: str, done: int, total: int, note: str = "", /) -> None:
    """Where nobody asked for progress."""


def time_left(seconds: float) -> str:
    """For a note."""
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
