"""Draw pictures with matplotlib, without a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hamburger_edge.errors import InputError, require

R = TypeVar("R")


def _pyplot() -> Any:
    """Return pyplot, or raise an error with the install command."""
    require("matplotlib", "bench").use("Agg")
    from matplotlib import pyplot as plots

    return plots


def draw(drawings: Mapping[str, Callable[[Any, R], Any]], report: R, folder: Path) -> list[Path]:
    """Write `NAME.png` for each drawing and return the paths.

    A drawing is a function of pyplot and the report. It returns None if there is nothing to draw.
    """
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
