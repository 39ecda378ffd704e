"""The word lists of lists.txt, by their names."""

from __future__ import annotations

import re
from pathlib import Path

_TEXT = (Path(__file__).parent / "lists.txt").read_text("utf-8")


def _read(text: str) -> dict[str, tuple[str, ...]]:
    lines = re.sub(r"\n +", " ", text).splitlines()
    pairs = (line.split(": ", 1) for line in lines if ": " in line and not line.startswith("#"))
    return {name: tuple(words.split(", ")) for name, words in pairs}


LISTS = _read(_TEXT)
