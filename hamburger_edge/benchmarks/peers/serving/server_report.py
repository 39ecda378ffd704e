"""Report the clients' measurements as JSON, terminal tables and Markdown tables."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.peers.serving.clients import Burst
from hamburger_edge.benchmarks.speed.interleave import Spread, ratios
from hamburger_edge.evaluation.machine import describe
from hamburger_edge.support.tables import pipes, table

PEER = "llama.cpp"  # prefix of the peers' names


@dataclass(frozen=True)
class ServingReport:
    base: str
    threads: int
    tokens: int  # length of each answer
    client_requests: int  # per round
    measured: dict[str, dict[str, list[Burst]]]  # scenario -> server -> rounds
    failed: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": describe(),
            "base": self.base,
            "threads": self.threads,
            "tokens": self.tokens,
            "requests_of_a_client": self.client_requests,
            "failed": self.failed,
            "scenarios": {name: _scenario(of) for name, of in self.measured.items()},
        }


def _scenario(of: Mapping[str, list[Burst]]) -> dict[str, Any]:
    speeds = {name: [burst.requests_per_s for burst in bursts] for name, bursts in of.items()}
    firsts = {name: [statistics.median(burst.first_s) for burst in bursts] for name, bursts in of.items()}
    peers = [name for name in of if name.startswith(PEER)]
    return {
        name: {
            "rounds": len(of[name]),
            "requests_per_s": Spread.of(speeds[name]).to_json(),
            "first_text_s": Spread.of(firsts[name]).to_json(),
            "speed_over": {
                peer: ratios(speeds[name], speeds[peer]).to_json() for peer in peers if name not in peers
            },
        }
        for name in of
    }


def tables(report: ServingReport) -> str:
    """Return the report as tables for the terminal."""
    data = report.to_json()
    machine = data["machine"]["cpu"]
    about = f"{report.base}, {machine}, threads: {report.threads}, answers of {report.tokens} tokens"
    return "\n\n".join([about, *(table(rows) for rows in _rows(data).values())])


def markdown(report: Mapping[str, Any]) -> str:
    """Return the Markdown table of docs/research/speed.md, with all scenarios in one table."""
    tables = _rows(report)
    peers = list(dict.fromkeys(name for rows in tables.values() for name in rows[0][3:]))
    lines = [["asked by", "server", "requests a second", "first text, ms", *peers]]
    for title, (head, *rows) in tables.items():
        for name, speed, first, *over in rows:
            cells = dict(zip(head[3:], over, strict=True))
            lines.append([title, f"`{name}`", speed, first, *(cells.get(peer, "") for peer in peers)])
    return pipes(lines)


def _rows(report: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return scenario -> table rows: a header, then one row per server."""
    tables = {}
    for title, of in report["scenarios"].items():
        peers = [name for name in of if name.startswith(PEER)]
        rows = [[title, "requests a second", "first text, ms", *(f"speed over {peer}" for peer in peers)]]
        for name, figures in of.items():
            over = figures["speed_over"]
            rows.append(
                [
                    name,
                    _spread(figures["requests_per_s"], 1, 2),
                    _spread(figures["first_text_s"], 1000, 0),
                    *(_spread(over[peer], 1, 2) if peer in over else "" for peer in peers),
                ]
            )
        tables[title] = rows
    return tables


def _spread(figures: Mapping[str, float], scale: float, digits: int) -> str:
    median, q1, q3 = (f"{scale * figures[name]:.{digits}f}" for name in ("median", "q1", "q3"))
    return f"{median} ({q1}-{q3})"


if __name__ == "__main__":  # python -m hamburger_edge.benchmarks.peers.serving.server_report serving.json
    print(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
