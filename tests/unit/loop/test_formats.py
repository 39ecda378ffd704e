"""Dates and times in JSON schemas are those of the calendar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any

import pytest

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.loop.formats import PATTERNS, with_patterns
from hamburger_edge.loop.grammar import Grammars
from hamburger_edge.loop.structure import Structure
from hamburger_edge.serve.tools import Function, Tools

DAY = {"type": "string", "format": "date"}


def read(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def test_dates_are_the_calendar_s() -> None:
    """llguidance's own pattern allows 0000-11-11 and 2023-02-29."""
    days = [f"{year:04d}-{day}" for year in range(10_000) for day in ("01-01", "02-28", "02-29", "12-31")]
    days += [
        f"{year}-{month:02d}-{day:02d}" for year in (2023, 2024) for month in range(100) for day in range(100)
    ]
    wrong = [day for day in days if bool(re.match(PATTERNS["date"], day)) != read(date.fromisoformat, day)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("00:00:00Z", True),
        ("23:59:59.123456789-23:59", True),
        ("09:30:00+01:00", True),
        ("24:00:00Z", False),
        ("23:59:60Z", False),
        ("12:60:00Z", False),
        ("12:00:00", False),
        ("12:00:00z", False),
        ("12:00:00.Z", False),
        ("12:00:00+24:00", False),
        ("12:00Z", False),
    ],
)
def test_times_have_a_zone_and_no_leap_second(text: str, allowed: bool) -> None:
    assert bool(re.match(PATTERNS["time"], text)) == allowed
    for day in ("2024-02-29", "2023-02-29"):
        found = bool(re.match(PATTERNS["date-time"], f"{day}T{text}"))
        assert found == (allowed and day == "2024-02-29")
        assert not found or read(datetime.fromisoformat, f"{day}T{text}")
    assert not allowed or read(time.fromisoformat, text)


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        (DAY, "2024-02-29", "0000-11-11"),  # a model's answer
        ({"format": "date", "pattern": "^2"}, "2024-02-29", "1996-02-29"),
        ({"format": "date", "pattern": "^2", "allOf": [{"pattern": "5$"}]}, "2024-02-25", "2024-02-29"),
        ({"$ref": "#/$defs/const", "$defs": {"const": DAY}}, "2000-02-29", "1900-02-29"),
        ({"anyOf": [{"type": "string", "format": "time"}, DAY]}, "12:00:00Z", "12:00:60Z"),
        ({"const": {"format": "date"}}, {"format": "date"}, "2024-02-29"),
        (
            {"type": "object", "properties": {"format": DAY}},
            {"format": "2024-02-29"},
            {"format": "2023-02-29"},
        ),
    ],
)
def test_schemas_are_followed_so(
    schema: dict[str, Any], allowed: Any, refused: Any, tokenizer: Tokenizer
) -> None:
    assert follows(tokenizer, {"json_schema": schema}, allowed)
    assert not follows(tokenizer, {"json_schema": schema}, refused)


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_arguments_of_functions_are_followed_so(choice: Any, tokenizer: Tokenizer) -> None:
    parameters = {"type": "object", "properties": {"day": DAY}, "required": ["day"]}
    tools = Tools((Function("book", "", parameters),), choice, several=False)
    for day, allowed in {"2024-02-29": True, "2023-02-29": False}.items():
        call = {"name": "book", "arguments": {"day": day}}
        assert follows(tokenizer, tools.options(), call) == allowed


def follows(tokenizer: Tokenizer, options: dict[str, Any], value: Any) -> bool:
    """Whether a structure allows this JSON value as a whole answer."""
    structure = Structure.of(**options)
    grammar = Grammars(tokenizer.to_json, tokenizer.vocab_size, [2]).start(structure, None)
    try:
        for token in tokenizer.encode(json.dumps(value)):
            grammar.consume(token)
    except InputError:
        return False
    return grammar.complete


def test_other_formats_and_values_stay() -> None:
    schema = {
        "items": {"format": "email"},
        "default": DAY,
        "enum": [DAY],
        "format": ["date"],
        "properties": 3,
    }
    assert with_patterns(schema) == schema
