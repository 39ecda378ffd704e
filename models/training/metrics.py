"""Metrics of a training run: summed over steps, appended to `metrics.jsonl`, read back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from hamburger_edge.errors import ConfigError

FILE = "metrics.jsonl"

Series = dict[tuple[str, str], dict[int, float]]  # (kind, metric) -> step of the run -> value


class Totals:
    """Sums and counts of metrics."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.tokens = 0

    def add(self, results: dict[str, Tensor], tokens: int = 0) -> None:
        self.tokens += tokens
        for name, pair in results.items():
            self.sums[name] = self.sums[name] + pair.cpu() if name in self.sums else pair.cpu()

    def means(self) -> dict[str, float]:
        return {name: round(float(s / max(float(n), 1e-9)), 4) for name, (s, n) in self.sums.items()}

    def __str__(self) -> str:
        return "  ".join(f"{name} {mean:.3f}" for name, mean in self.means().items())


def append_metrics(run_folder: Path, kind: str, stage: str, step: int, means: dict[str, float]) -> None:
    line = {"kind": kind, "stage": stage, "step": step, **means}
    with open(run_folder / FILE, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # half a line of a killed run or a full disk
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")


def _whole(line: str) -> dict[str, Any] | None:
    """Return a line's record; None for the rest of a killed write."""
    try:
        metrics: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return metrics


def read_metrics(path: Path) -> tuple[Series, dict[str, int]]:
    """Return all series, and the step at which each stage began.

    Records logged twice, before a kill and after resuming, count once; half a line does not count.
    """
    try:
        text = path.read_text(encoding="utf-8")
        lines = [line for line in map(_whole, text.splitlines()) if line is not None]
        if text and not lines:
            raise ValueError("no line can be read")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: no metrics of a training run there ({error})") from error
    last = {(line["stage"], line["kind"], line["step"]): line for line in lines}
    lengths: dict[str, int] = {}
    for stage, _, step in last:
        lengths[stage] = max(step, lengths.get(stage, 0))
    begins = {stage: sum(list(lengths.values())[:i]) for i, stage in enumerate(lengths)}
    series: Series = {}
    for (stage, kind, step), line in sorted(last.items(), key=lambda item: begins[item[0][0]] + item[0][2]):
        for name in line.keys() - {"kind", "stage", "step"}:
            series.setdefault((kind, name), {})[begins[stage] + step] = line[name]
    return series, begins
