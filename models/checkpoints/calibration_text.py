"""`calibration.jsonl` in a checkpoint: questions and answers of the model's kind, one per line.

    {"prompt": "Play jazz", "answer": "{\\"intent\\": ...}"}      "system" is optional

An export calibrates the model's low-bit weights and the ranges of its cache on this text, but for the first
of every six conversations: the parity gate judges the exported model on those. Fewer than twelve are all
calibrated on, and the gate takes the text of the exporter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.errors import ConfigError
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.strict import decode_line, from_mapping, read_lines

CALIBRATION = "calibration.jsonl"
KEPT, FEWEST = 6, 12  # the first of every KEPT conversations is kept for judging, if there are FEWEST


@dataclass(frozen=True)
class CalibrationExample:
    prompt: str
    answer: str
    system: str | None = None


def read_calibration(path: Path) -> list[CalibrationExample]:
    parts = [
        from_mapping(CalibrationExample, decode_line(line, where), where) for where, line in read_lines(path)
    ]
    whole = [part for part in parts if part.prompt and part.answer]
    if not whole:
        raise ConfigError(f"{path}: holds no text: delete it, or write one question and answer per line")
    return whole


def to_fit(text: Sequence[CalibrationExample]) -> list[CalibrationExample]:
    """Return the conversations that weights and cache ranges are fitted to."""
    return [part for number, part in enumerate(text) if number % KEPT or len(text) < FEWEST]


def to_judge(text: Sequence[CalibrationExample]) -> list[CalibrationExample]:
    """Return the others."""
    return list(text[::KEPT]) if len(text) >= FEWEST else []


def write_calibration(path: Path, text: Iterable[CalibrationExample]) -> None:
    lines = []
    for example in text:
        told = {name: value for name, value in vars(example).items() if value is not None}
        lines.append(json.dumps(told, ensure_ascii=False) + "\n")
    with write_atomically(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
