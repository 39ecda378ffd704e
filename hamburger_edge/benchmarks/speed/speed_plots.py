"""Plot a report: decode speed, cost against length, and quality against compression."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.speed.curve import by_name
from hamburger_edge.benchmarks.speed.our_speed import PLAIN, VERIFY
from hamburger_edge.benchmarks.speed.pictures import draw
from hamburger_edge.benchmarks.speed.speed_report import SpeedReport

OURS, THEIRS = "#c8553d", "#8a9a9b"


SHAPE: dict[str, Any] = {"figsize": (7.2, 4), "dpi": 100, "layout": "constrained"}


def plot(report: SpeedReport, folder: Path) -> list[Path]:
    """Write the plots that the report has data for; return their paths."""
    return draw({"speed": _speed, "length": _length, "compression": _compression}, report, folder)


def _speed(plots: Any, report: SpeedReport) -> Any:
    """Bars: median decode speed, with quartiles as error bars."""
    rows = report.results[::-1]
    figure = plots.figure(**{**SHAPE, "figsize": (7.2, max(4, 0.24 * len(rows) + 0.6))})
    axes = figure.add_subplot()
    medians = [row.decode_tps.median for row in rows]
    lower = [row.decode_tps.median - row.decode_tps.q1 for row in rows]
    upper = [row.decode_tps.q3 - row.decode_tps.median for row in rows]
    colours = [OURS if "@" in row.name else THEIRS for row in rows]
    labels = [f"{row.name} ({row.precision})" for row in rows]
    axes.barh(labels, medians, xerr=[lower, upper], color=colours, ecolor="#333333", capsize=2)
    for bar, row in enumerate(rows):
        end = row.decode_tps.q3
        axes.annotate(f" {medians[bar]:.0f}", (end, bar), va="center", fontsize=8)
    label = f"tokens/s, {report.base}, {report.threads} threads: median and quartiles"
    figure.supxlabel(label, fontsize=10)  # as wide as the picture: the bars may be narrower than the label
    axes.margins(x=0.1, y=0.02)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _length(plots: Any, report: SpeedReport) -> Any:
    """Left: milliseconds per token. Right: cache size in MB. x axis: generated tokens."""
    if not report.curve:
        return None
    figure = plots.figure(**SHAPE)
    time, memory = figure.subplots(1, 2)
    peers = iter((THEIRS, "#35618f", "#333333"))
    modes = itertools.cycle(("--", "-", ":", "-."))  # plain decoding first
    for name, points in by_name(report.curve).items():
        ours = "@" in name
        colour, line = (OURS, next(modes)) if ours else (next(peers, THEIRS), "-")
        style = {"label": name, "color": colour, "linestyle": line}
        tokens = [point["tokens"] for point in points]
        time.plot(tokens, [point["ms_per_token"] for point in points], **style)
        memory.plot(tokens, [point["kv_bytes"] / 1e6 for point in points], **style)
    time.set_ylabel("ms a token")
    memory.set_ylabel("KV cache, MB (prompt included)")
    for axes in (time, memory):
        axes.set_xlabel("tokens generated")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def _compression(plots: Any, report: SpeedReport) -> Any:
    """Nats per token under the plain base against tokens per step. The dashed line is plain decoding."""
    scored = [row for row in report.results if row.nll is not None]
    if not scored:
        return None
    figure = plots.figure(**SHAPE)
    axes = figure.add_subplot()
    for runtime, colour in (("onnx", OURS), ("llamacpp", "#35618f")):
        rows = [row for row in scored if row.name.split("@")[0] == runtime]
        for row in rows:
            if row.name.endswith(f"@{PLAIN}"):
                axes.axhline(row.nll, color=colour, linestyle="--", linewidth=1)
            axes.annotate(
                row.name.split("@")[1],
                (row.tokens_per_step, row.nll),
                textcoords="offset points",
                xytext=(5, 5),
                fontsize=8,
            )
        if rows:
            for style, verified in (("o-", False), ("s", True)):
                some = [row for row in rows if row.name.endswith(VERIFY) == verified]
                points = [row.tokens_per_step for row in some], [row.nll for row in some]
                axes.plot(*points, style, color=colour, label=None if verified else runtime)
    axes.set_xlabel("tokens a step")
    axes.set_ylabel("nats a token under the plain base")
    axes.margins(0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title="by confidence; dashed: plain; square: verified")
    return figure
