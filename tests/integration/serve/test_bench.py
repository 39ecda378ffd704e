"""The serving benchmark measures each server and names those that fail."""

from __future__ import annotations

import sys
from pathlib import Path

from hamburger_edge.benchmarks.peers.serving.clients import ALTERNATING, SCENARIOS
from hamburger_edge.benchmarks.peers.serving.server_bench import ServingPlan, measure
from hamburger_edge.benchmarks.peers.serving.server_report import markdown, tables
from hamburger_edge.benchmarks.peers.serving.servers import Contestant, ours

END = 2  # of `tiny`
QUICK = ServingPlan(tokens=4, rounds=1, client_requests=1, background=0, eos_ids=(END,))


def test_failing_server_is_named_and_the_others_are_measured(tiny: Path) -> None:
    broken = Contestant("broken", (sys.executable, "-c", "raise SystemExit('no port {port} for me')"))
    strange = ours(tiny, 1, 512, "strange", loudness=3)
    two = ours(tiny, 2, 512, "two", workers=2)
    report = measure([ours(tiny, 1, 512), broken, strange, two], QUICK)
    assert set(report.failed) == {"broken", "strange"}
    assert "for me" in report.failed["broken"]
    assert "loudness" in report.failed["strange"]
    assert tuple(report.measured) == SCENARIOS
    for title, figures in report.to_json()["scenarios"].items():
        alone = title in ("1 client", ALTERNATING)
        assert list(figures) == (["serve"] if alone else ["serve", "two"]), title
        for row in figures.values():
            assert row["requests_per_s"]["median"] > 0
            assert row["first_text_s"]["median"] > 0
    [burst] = report.measured["16 clients"]["serve"]
    assert len(burst.first_s) == 16
    assert all(title in tables(report) for title in report.measured)
    assert len(markdown(report.to_json()).splitlines()) == 2 + 6  # head and rows


def test_server_that_cuts_answers_short_fails(tiny: Path) -> None:
    """Shorter answers would raise its requests per second."""
    report = measure([ours(tiny, 1, 512, stop=["a"])], QUICK)
    assert "it was to be longer" in report.failed["serve"]
