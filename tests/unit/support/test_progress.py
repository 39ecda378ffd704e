"""Work in several stages is shown as one: a share that never falls, and the time left."""

from __future__ import annotations

import io
from typing import Any

from hamburger_edge.support.progress import StagedProgress
from hamburger_edge.support.terminal import ProgressBar


class Told:
    """Records reports, and is the clock: `now` seconds since the beginning."""

    def __init__(self, shares: dict[str, float]) -> None:
        self.now, self.calls = 0.0, list[Any]()
        self.progress = StagedProgress(lambda *given: self.calls.append(given), shares, lambda: self.now)

    def at(self, now: float, stage: str, done: int = 0, total: int = 0) -> Any:
        self.now = now
        self.progress(stage, done, total)
        return self.calls[-1]


def test_stages_share_one_bar_with_remaining_time() -> None:
    """Not a download: it is reported as it is, and no part of the time."""
    told = Told({"loading": 1, "quantizing": 6, "tracing": 3})
    assert told.at(0, "loading") == ("loading", 0, 1000, "")
    assert told.at(50, "fetching", 5, 93) == ("fetching", 5, 93, "")
    assert told.at(52, "quantizing", 0, 4) == ("quantizing", 100, 1000, "about 18 s left")
    assert told.at(58, "quantizing", 2, 4) == ("quantizing", 400, 1000, "about 12 s left")
    assert told.at(64, "tracing") == ("tracing", 700, 1000, "about 6 s left")


def test_repeated_or_skipped_stage_never_moves_the_bar_back() -> None:
    told = Told({"loading": 1, "hashing": 1, "verifying": 8})
    assert told.at(1, "verifying", 1, 2)[1] == 600
    assert told.at(2, "hashing")[1] == 600


def test_log_has_one_line_per_stage_with_its_share() -> None:
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        whole = StagedProgress(bar, {"loading": 1, "tracing": 1}, lambda: 0.0)
        whole("loading", 0, 0)
        whole("tracing", 0, 0)
    assert stream.getvalue() == "loading ...\ntracing ...  50% about 0 s left\n"
    assert set(bar.seconds) == {"loading", "tracing"}
