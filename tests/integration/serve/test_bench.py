"""Servers side by side: everybody answers everything, and one that does not is named and left out."""

from __future__ import annotations

import sys
from pathlib import Path

from hamburger_edge.benchmarks.serving.bench import ALTERNATING, CLIENTS, ServingPlan, measure, tables
from hamburger_edge.benchmarks.serving.servers import Contestant, ours

QUICK = ServingPlan(tokens=4, rounds=1, each=1, background=0)


def test_servers_are_measured_in_turn(tiny: Path) -> None:
    broken = Contestant("broken", (sys.executable, "-c", "raise SystemExit('no port {port} for me')"))
    strange = ours(tiny, 1, 512, "strange", loudness=3)
    report = measure([ours(tiny, 1, 512, "serve"), broken, strange], QUICK)
    assert set(report.failed) == {"broken", "strange"}
    assert "for me" in report.failed["broken"]
    assert "loudness" in report.failed["strange"]
    assert list(report.measured) == [*(f"{number} clients" for number in CLIENTS), ALTERNATING]
    for title, of in report.to_json()["scenarios"].items():
        assert list(of) == ["serve"], title
        assert of["serve"]["requests_per_s"]["median"] > 0
        assert of["serve"]["first_text_s"]["median"] > 0
    [burst] = report.measured["16 clients"]["serve"]
    assert len(burst.first_s) == 16
    assert all(title in tables(report) for title in report.measured)
