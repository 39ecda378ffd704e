"""`export_checkpoint` with the options that users give in a recipe file as arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hamburger_edge.export.options import ExportOptions
from hamburger_edge.export.pipeline import export as export_pipeline
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.progress import Progress, no_progress


def export(
    checkpoint: str | Path | Checkpoint, out: str | Path, *, progress: Progress = no_progress, **options: Any
) -> Path:
    if "formats" in options:
        options["formats"] = tuple(options["formats"])
    return export_pipeline(checkpoint, out, ExportOptions(**options), progress=progress)
