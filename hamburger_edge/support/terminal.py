"""Terminal functions: progress and notes on standard error, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from hamburger_edge.errors import printable


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ


def note(line: str) -> None:
    """Print a line on standard error."""
    _tell(sys.stderr, printable(line) + "\n")


def _tell(stream: TextIO, text: str) -> None:
    """Write and flush; after an OSError (closed pipe, lost terminal, full disk) silence the stream."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        silence(stream)


def silence(stream: TextIO) -> None:
    """Redirect the stream to the null device, its buffered text included."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


class ProgressBar:
    """Display `progress(stage, done, total)`.

    A terminal shows a bar, and leaves a line with the seconds of each finished stage. Other streams get one
    line per stage and at most one per minute. `seconds` holds the time of each finished stage.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = is_terminal(self.stream)
        self.stage, self.began, self.shown = "", 0.0, 0.0
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        new = stage != self.stage
        if new:
            self.close()
            self.stage, self.began = stage, now
        elif now - self.shown < (0.1 if self.live else 60):
            return
        self.shown = now
        share = f"{100 * min(done, total) // total:3}%" if total else "..."
        if self.live:
            bar = f"[{'#' * (24 * min(done, total) // total):24}] " if total else ""
            _tell(self.stream, f"\r\x1b[K{stage:32} {bar}{share} {note}")
        else:
            line = f"{stage} ... {share if done else ''} {note}" if new else f"{stage} {share} {note}"
            _tell(self.stream, f"{line.rstrip()}\n")

    def close(self) -> None:
        """End the line of the current stage."""
        if self.stage:
            passed = time.monotonic() - self.began
            self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + passed
            if self.live:
                _tell(self.stream, f"\r\x1b[K{self.stage:32} {passed:6.1f} s\n")
        self.stage = ""


@contextlib.contextmanager
def interruptible(cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` on Ctrl-C: the answer ends after the current step, without a KeyboardInterrupt in it."""
    here = threading.current_thread() is threading.main_thread()  # signals reach this thread only
    if not here or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):  # in a background job
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
