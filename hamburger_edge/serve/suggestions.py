"""Requests that the pages suggest for a model of one task: calibration examples of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import HamburgerError
from hamburger_edge.models.checkpoints.built_in import find_built_in
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, read_calibration

Suggestions = Mapping[str, Sequence[str]]  # name of a served model -> requests
NO_SUGGESTIONS: Suggestions = {}
COUNT = 3
LONGEST = 90  # characters of a suggestion


def suggestions(name: str, bundle: Path) -> list[str]:
    """Return requests for a model; none if its checkpoint is not here, or has no examples.

    `name` is what the user gave: a built-in model, or the folder of a checkpoint or bundle.
    """
    try:
        checkpoint = _checkpoint(name, bundle)
        if checkpoint is None or not (checkpoint / CALIBRATION).is_file():
            return []
        examples = read_calibration(checkpoint / CALIBRATION)
    except (HamburgerError, OSError):  # a suggestion is no reason to refuse a model
        return []
    prompts = [example.prompt for example in examples if example.prompt != example.answer]
    short = list(dict.fromkeys(prompt for prompt in prompts if prompt and len(prompt) <= LONGEST))
    step = max(1, len(short) // COUNT)
    return short[::step][:COUNT]  # from all over the examples, which may be sorted by kind


def _checkpoint(name: str, bundle: Path) -> Path | None:
    if (Path(name) / CALIBRATION).is_file():
        return Path(name)
    return find_built_in(name) or (
        find_built_in(load_manifest(bundle).graft.name) if (bundle / FILE_NAME).is_file() else None
    )
