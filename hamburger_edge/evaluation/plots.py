"""Draw an evaluation: quality against compression, and the calibration of the stop head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hamburger_edge.evaluation.pictures import draw
from hamburger_edge.evaluation.quality_report import ModelReport, QualityReport


def plot(report: QualityReport, folder: Path) -> list[Path]:
    """Write `quality.png` and `reliability.png`."""
    return draw({"quality": _quality, "reliability": _reliability}, report, folder)


def _quality(plots: Any, report: QualityReport) -> Any:
    """Draw right answers and nats per token against tokens per KV entry, with one dot per confidence."""
    panels = [("nats a token under the plain base", "nll"), ("right answers", "right")]
    panels = panels[: 2 if report.base.all.checked else 1]
    figure, grid = plots.subplots(
        1, len(panels), figsize=(6.5 * len(panels), 4.8), dpi=110, layout="constrained", squeeze=False
    )
    for axes, (title, field) in zip(grid.flat, panels, strict=True):
        base = getattr(report.base.all, field)
        if base is not None:
            axes.axhline(base, color="grey", linestyle="--", linewidth=1, label="plain base")
        for model in report.models:
            _line(axes, model, field)
        axes.set_xlabel("KV compression: tokens of the answers for each entry they take")
        axes.set_title(title, fontsize=10)
        axes.set_ylim(0, 1.08 * max(axes.get_ylim()[1], 0.1))
        axes.grid(alpha=0.2)
        axes.legend(fontsize=8)
    return figure


def _line(axes: Any, model: ModelReport, field: str) -> None:
    points = [
        (row.all.kv_compression, getattr(row.all, field), row.confidence)
        for row in model.rows
        if row.all.kv_compression is not None and getattr(row.all, field) is not None
    ]
    if points:
        xs, ys, confidences = zip(*points, strict=True)
        (line,) = axes.plot(xs, ys, marker="o", markersize=4, linewidth=1.2, alpha=0.8, label=model.name)
        for x, y, confidence in zip(xs, ys, confidences, strict=True):
            axes.annotate(
                f"{confidence:g}",
                (x, y),
                textcoords="offset points",
                xytext=(4, 4),
                fontsize=7,
                color=line.get_color(),
            )


def _reliability(plots: Any, report: QualityReport) -> Any:
    """Draw observed against expected agreement, and below it the proposals per bin.

    The diagonal is a perfectly calibrated stop head.
    """
    figure, (axes, bars) = plots.subplots(
        2, 1, figsize=(6, 6.5), dpi=110, layout="constrained", sharex=True, height_ratios=(3, 1)
    )
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    for number, model in enumerate(report.models):
        found = model.calibration
        bins = zip(found.expected, found.observed, strict=True)
        points = [(e, o) for e, o in bins if e is not None and o is not None]
        if not points:
            continue
        label = f"{model.name}, off by {found.error:.3f}"
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label, color=f"C{number}")
        width = 1 / len(found.counts) / len(report.models)
        lefts = [i / len(found.counts) + number * width for i in range(len(found.counts))]
        bars.bar(lefts, found.counts, width=width, align="edge", color=f"C{number}")
    axes.set_ylabel("observed: the base chooses the same token")
    bars.set_xlabel("expected by the stop head")
    bars.set_ylabel("proposals")
    for each in (axes, bars):
        each.grid(alpha=0.2)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    return figure
