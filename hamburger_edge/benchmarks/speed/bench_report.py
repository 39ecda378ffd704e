"""The part that all reports of compared programs have: machine, versions, weights, and who took no part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hamburger_edge.benchmarks.contender import Source
from hamburger_edge.evaluation import machine


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    machine: dict[str, Any]
    versions: dict[str, str]
    base: str
    precision: str
    threads: int
    skipped: list[dict[str, str]]  # {"name", "why"}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def heading(self) -> str:
        return f"{self.base} at {self.precision}, {self.machine['cpu']}, threads: {self.threads}"

    @property
    def skipped_lines(self) -> list[str]:
        return [f"skipped {row['name']}: {row['why']}" for row in self.skipped]


def shared_facts(source: Source, skipped: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Return a report's fields of `BenchReport`. The command adds the base's name."""
    return {
        "machine": machine.describe(),
        "versions": machine.versions(),
        "base": "",
        "precision": source.precision,
        "threads": source.threads,
        "skipped": list(skipped),
    }
