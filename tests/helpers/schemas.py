"""JSON schemas of many shapes, whose answers a random model can finish."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any

import jsonschema
from hypothesis import strategies as st

NAMES = ["name", "naïve", "na", 'say "hi"', "日本", "tab\t", "back\\slash", "🙂", "x y", "a"]
WORDS = ["the", "then", "the cat", "the cat sat", "", "new\nline", "日本", "9", "\\u0041"]
WORDS += ["héllo 🙂", 'a "quoted" word']

_scalars = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}]),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5, unique=True).map(lambda words: {"enum": words}),
    st.sampled_from([*WORDS, 17, -2.5, None, True, ["a", {"b": 1}]]).map(lambda value: {"const": value}),
    st.tuples(st.integers(-50, 50), st.integers(0, 300)).map(
        lambda ends: {"type": "integer", "minimum": ends[0], "maximum": sum(ends)}
    ),
    st.integers(0, 4).map(lambda most: {"type": "string", "maxLength": most}),
    st.sampled_from(
        [
            {"type": "string", "pattern": "^[a-c]{2,5}$"},
            {"type": "string", "pattern": "^(yes|no|maybe)$"},
            *({"type": "string", "format": name} for name in ("date", "time", "date-time")),
            {"type": "string", "minLength": 2, "maxLength": 5},
            {"type": ["integer", "null"], "minimum": 5, "maximum": 12, "multipleOf": 5},
        ]
    ),
)


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    properties = {name: draw(inner) for name in names}
    required = [name for name in names if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _tuple(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": schemas, "items": False, "minItems": len(schemas)}


def _array(schema: dict[str, Any], least: int, more: int) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": least, "maxItems": least + more}


def _nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        _objects(inner),
        _objects(inner),
        st.builds(_array, inner, st.integers(0, 2), st.integers(0, 2)),
        several.map(lambda schemas: {"anyOf": schemas}),
        several.map(_tuple),
    )


def _referred(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$defs": {"part": schema}, **_tuple([{"$ref": "#/$defs/part"}] * 2)}


_plain = st.recursive(_scalars, _nested, max_leaves=6)
schemas = st.one_of(_plain, _plain, _plain, _plain.map(_referred))


# beyond the limits
WIDE = {"type": "object", "properties": {f"p{index}": {} for index in range(1001)}}
DEEP: dict[str, Any] = {}
for _ in range(40):
    DEEP = {"properties": {"a": DEEP}}

CLOCK = r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "date": (r"\d{4}-\d\d-\d\d", date.fromisoformat),
    "time": (CLOCK, time.fromisoformat),
    "date-time": (rf"\d{{4}}-\d\d-\d\dT{CLOCK}", datetime.fromisoformat),
}
CHECKER = jsonschema.FormatChecker(formats=())
for name, (form, read) in FORMATS.items():
    CHECKER.checks(name, ValueError)(
        lambda value, form=form, read=read: (
            not isinstance(value, str) or (re.fullmatch(form, value) and read(value))
        )
    )


def check(schema: dict[str, Any], text: str) -> None:
    """A complete answer is JSON that follows its schema."""
    jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator, format_checker=CHECKER)
