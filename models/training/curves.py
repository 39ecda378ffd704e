"""A picture of a training run: `curves.png` from its `metrics.jsonl`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hamburger_edge.errors import require
from hamburger_edge.models.training.metrics import Series, read_metrics
from hamburger_edge.support.files import write_atomically

# panel title -> label of its vertical axis, and its metrics, by the beginning of their names
PANELS = {
    "answers right, held out": ("share of answers", ("right",)),
    "loss": ("nats per token", ("first_loss", "micro_loss", "stop_loss")),
    "agreement with the plain base": ("share of tokens", ("first_agree", "micro_agree")),
    "tokens a group, were every position a start": ("tokens", ("group_length",)),
    "agreement of accepted micro tokens": ("share of tokens", ("agree@",)),
}
STYLES: dict[str, dict[str, Any]] = {
    "train": {"alpha": 0.35, "linewidth": 1},
    "answers": {"marker": "o", "markersize": 3, "linewidth": 1.2},
    "held_out_plain": {"marker": "o", "markersize": 3, "linewidth": 1.2},
    "held_out_merged": {"marker": "s", "markersize": 3, "linewidth": 1.2, "linestyle": "--"},
}


def plot(run_folder: Path) -> Path:
    """Draw `curves.png` into a run's folder.

    Pale lines: training. Dots: held out. Squares, dashed: held out, answers merged.
    """
    matplotlib = require("matplotlib", "train")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    series, begins = read_metrics(run_folder / "metrics.jsonl")
    panels = {
        title: {key: values for key, values in series.items() if key[1].startswith(names)}
        for title, (_, names) in PANELS.items()
    }
    panels = {title: chosen for title, chosen in panels.items() if chosen}
    rows = math.ceil(len(panels) / 2)
    figure, grid = pyplot.subplots(
        rows, 2, figsize=(12, 4 * rows), layout="constrained", sharex=True, squeeze=False
    )
    for axes, (title, chosen) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, title, chosen)
        for stage, step in begins.items():
            axes.axvline(step, color="grey", linewidth=0.6, linestyle=":")
            axes.annotate(
                stage, (step, 1), xycoords=("data", "axes fraction"), xytext=(3, -10),
                textcoords="offset points", fontsize=8, color="grey",
            )  # fmt: skip
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for column in grid.T:  # the lowest panel of each column names the shared axis
        for lowest in [axes for axes in column if axes.get_visible()][-1:]:
            lowest.set_xlabel("step")
            lowest.tick_params(labelbottom=True)
    path = run_folder / "curves.png"
    with write_atomically(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return path


def _panel(axes: Any, title: str, series: Series) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(PANELS[title][0])
    axes.grid(alpha=0.2)
    names = sorted({name for _, name in series})
    for number, name in enumerate(names):
        for kind, style in STYLES.items():
            points = series.get((kind, name), {})
            label = name if kind == next(k for k in reversed(STYLES) if (k, name) in series) else None
            axes.plot(list(points), list(points.values()), color=f"C{number}", label=label, **style)
    axes.legend(fontsize=8)
