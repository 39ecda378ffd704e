"""Figures as pictures, drawn by matplotlib without a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hamburger_edge.errors import InputError, require

R = TypeVar("R")


def _pyplot() -> Any:
    """Matplotlib's, or an error that says how to get it."""
    require("matplotlib", "bench").use("Agg")
    from matplotlib import pyplot as plots

    return plots


def draw(drawings: Mapping[str, Callable[[Any, R], Any]], report: R, folder: Path) -> list[Path]:
    """`NAME.png` of each drawing: a function of pyplot and the report, whose None says that there is nothing
    to draw. Returns the files."""
    plots = _pyplot()
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, drawing in drawings.items():
            if (figure := drawing(plots, report)) is not None:
                written.append(folder / f"{name}.png")
                figure.savefig(written[-1], metadata={"Software": None})
                plots.close(figure)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}: choose another folder") from error
    return written
