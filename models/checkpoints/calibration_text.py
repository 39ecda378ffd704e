"""`calibration.jsonl` in a checkpoint: questions and answers of the model's kind, one per line.

    {"prompt": "Play jazz", "answer": "{\\"intent\\": ...}"}      "system" is optional

An export calibrates the model's low-bit weights on this text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.errors import ConfigError
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.strict import decode_line, from_mapping, read_lines

CALIBRATION = "calibration.jsonl"


@dataclass(frozen=True)
class CalibrationExample:
    prompt: str
    answer: str
    system: str | None = None


def read_calibration(path: Path) -> list[CalibrationExample]:
    found = [
        from_mapping(CalibrationExample, decode_line(line, where), where) for where, line in read_lines(path)
    ]
    if not any(each.prompt and each.answer for each in found):
        raise ConfigError(f"{path}: holds no text: delete it, or write one question and answer per line")
    return found


def write_calibration(path: Path, text: Iterable[CalibrationExample]) -> None:
    lines = []
    for example in text:
        told = {name: value for name, value in vars(example).items() if value is not None}
        lines.append(json.dumps(told, ensure_ascii=False) + "\n")
    with write_atomically(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
