"""Read prompts with optional checks of their answers: one JSON object a line.

{"prompt": "What is 7 plus 8?", "kind": "arithmetic", "check": {"type": "number", "value": 15}}

    exact      the answer equals the text after stripping white space
    contains   the answer contains the text, case-insensitively
    regex      Python's `re.search` finds the pattern in the answer
    number     the last number of the answer equals the value; 1,234.5 is read as 1234.5
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from hamburger_edge.errors import InputError
from hamburger_edge.support.strict import decode_line, only_keys, read_lines
from hamburger_edge.support.values import check_text, safe_repr

Parsed = TypeVar("Parsed")

BUILT_IN = Path(__file__).with_name("prompts.jsonl")
TYPES = ("exact", "number", "regex", "contains")
_LARGEST = 1e300  # within the range of a float
_NUMBER = re.compile(r"(?:(?<![\w.)])[-−])?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class Check:
    type: str
    value: str | float

    def passes(self, answer: str) -> bool:
        if self.type == "number":
            number = last_number(answer)
            return number is not None and math.isclose(number, float(self.value), rel_tol=1e-6, abs_tol=1e-9)
        value = str(self.value)
        if self.type == "regex":
            return re.search(value, answer) is not None
        if self.type == "contains":
            return value.casefold() in answer.casefold()
        return answer.strip() == value.strip()


@dataclass(frozen=True)
class Prompt:
    text: str
    kind: str = "other"
    check: Check | None = None


def last_number(text: str) -> float | None:
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "").replace("−", "-")) if numbers else None


def read_prompts(path: str | PathLike[str] = BUILT_IN) -> list[Prompt]:
    """Read a file of prompts. Errors name the line."""
    return parse_lines(path, parse_prompt)


def parse_lines(path: str | PathLike[str], parse: Callable[[str, str], Parsed]) -> list[Parsed]:
    """Return `parse(line, place)` of each line; raise InputError for a file without lines."""
    prompts = [parse(line, where) for where, line in read_lines(path)]
    if not prompts:
        raise InputError(f'{path}: holds no prompts: write one {{"prompt": "..."}} a line')
    return prompts


def parse_prompt(line: str, where: str) -> Prompt:
    data = decode_line(line, where)
    only_keys(data, ("prompt", "kind", "check"), where)
    text, kind = data.get("prompt"), data.get("kind", "other")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: prompt must be a text, got {safe_repr(text)}")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{where}: kind must be a word, got {safe_repr(kind)}")
    for part in (text, kind):
        check_text(part, where)
    return Prompt(text, kind, parse_check(data["check"], where) if "check" in data else None)


def parse_check(data: Any, where: str) -> Check:
    where = f"{where}: check"
    only_keys(data, ("type", "value"), where)
    kind, value = data.get("type"), data.get("value")
    if kind not in TYPES:
        raise InputError(f"{where}.type must be one of {', '.join(TYPES)}, got {safe_repr(kind)}")
    if kind == "number":
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not -_LARGEST <= value <= _LARGEST:
            raise InputError(f"{where}.value must be a number, got {safe_repr(value)}")
        return Check(kind, float(value))
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}.value must be a text, got {safe_repr(value)}")
    check_text(value, where)
    if kind == "regex":
        try:
            re.compile(value)
        except re.error as error:
            raise InputError(
                f"{where}.value is not a regular expression ({error}): {safe_repr(value)}"
            ) from error
    return Check(kind, value)
