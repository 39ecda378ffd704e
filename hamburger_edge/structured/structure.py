"""The requested structure of an answer: a JSON schema, a regular expression, or a grammar.

The checks here refuse structures that would take minutes or gigabytes to compile. The compiler finds all
other faults.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from hamburger_edge.calls.catalogue import CallLimits
from hamburger_edge.errors import InputError
from hamburger_edge.support.values import check_text, flag, safe_repr

Kind = Literal["json_schema", "regex", "grammar", "calls"]

_WRAPPER = {"name", "description", "schema", "strict"}  # OpenAI's object around a schema
LARGEST = 1 << 16  # characters of a structure
MOST_PROPERTIES = 1000  # of one object: the time to compile grows with their square
DEEPEST = 64  # nested objects and arrays
LARGEST_MULTIPLE = 30_000  # of all multipleOf: the number of states of an automaton


@dataclass(frozen=True)
class Structure:
    """A structure as plain text."""

    kind: Kind
    # a JSON schema, a regular expression, a grammar in Lark's syntax, or limits of calls as JSON
    text: str
    lenient: bool = False  # ignore unsupported keywords of a schema

    @classmethod
    def of(
        cls, *, json_schema: Any = None, regex: Any = None, grammar: Any = None, calls: Any = None
    ) -> Structure | None:
        """Return the structure from the options of an answer; None if there is none."""
        given: dict[Kind, Any] = {"json_schema": json_schema, "regex": regex, "grammar": grammar}
        given["calls"] = None if calls is None else json.dumps(CallLimits.of(calls).to_json())
        named: list[Kind] = [kind for kind, value in given.items() if value is not None]
        if not named:
            return None
        if len(named) > 1:
            raise InputError(f"give one of {' and '.join(named)}: an answer has one structure")
        [kind] = named
        text, lenient = _schema(json_schema) if kind == "json_schema" else (given[kind], False)
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{kind} must be a text that says something, got {safe_repr(text)}")
        if len(text) > LARGEST:
            raise InputError(
                f"{kind} has {len(text)} characters, at most {LARGEST} are taken: make it simpler"
            )
        try:
            check_text(text)
        except InputError as error:
            raise InputError(f"{kind}: {error}: correct it") from error
        if kind == "calls":
            return cls(kind, text)
        for schema in [json.loads(text)] if kind == "json_schema" else _embedded(kind, text):
            _check_schema(kind, schema)
        if kind != "regex":
            _check_multiples(kind, text)
        return cls(kind, text, lenient)

    def to_options(self) -> dict[str, Any]:
        if self.kind == "calls":
            return {"calls": json.loads(self.text)}
        return {self.kind: {"schema": self.text, "strict": False} if self.lenient else self.text}

    def place(self, keyword: str, value: Any = None) -> str | None:
        """Return a JSON pointer to the first schema with this keyword (and value); None if there is none."""
        if self.kind != "json_schema":
            return None
        for path, part in _parts(json.loads(self.text)):
            if isinstance(part, dict) and keyword in part and value in (None, part[keyword]):
                return "#" + "".join(f"/{name}" for name in path)
        return None


def _schema(given: Any) -> tuple[Any, bool]:
    """Return a schema as JSON without escapes, and whether `strict` is false: see `Options.json_schema`."""
    if isinstance(given, str) and len(given) > LARGEST:
        return given, False  # too long to parse: the caller refuses it
    schema, strict = _parsed(given), True
    if isinstance(schema, Mapping) and "schema" in schema and schema.keys() <= _WRAPPER:
        strict = flag("json_schema.strict", schema.get("strict", True))
        schema = _parsed(schema["schema"])
    if not isinstance(schema, Mapping):
        raise InputError(f"json_schema must be an object, got {safe_repr(schema)}")
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False), not strict
    except RecursionError as error:
        raise _too_deep() from error
    except (TypeError, ValueError) as error:
        raise InputError(f"json_schema is not plain JSON ({error}): correct it") from error


def _parsed(schema: Any) -> Any:
    """Convert a schema's JSON, or a Pydantic model class, to plain data."""
    describe = getattr(schema, "model_json_schema", None)
    if callable(describe):
        return describe()
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise InputError(f"json_schema is not valid JSON ({error}): correct it") from error


def _embedded(kind: Kind, text: str) -> Iterator[Any]:
    """Yield the schemas inside a grammar. The compiler reports those that are not JSON."""
    for match in re.finditer(r"%json\s*(?=\{)", text) if kind == "grammar" else ():
        try:
            yield json.JSONDecoder().raw_decode(text, match.end())[0]
        except RecursionError as error:
            raise _too_deep(kind) from error
        except ValueError:
            continue


def _check_schema(kind: Kind, schema: Any) -> None:
    for path, part in _parts(schema):
        if len(path) > DEEPEST:
            raise _too_deep(kind)
        properties = part.get("properties") if isinstance(part, dict) else None
        if isinstance(properties, dict) and len(properties) > MOST_PROPERTIES:
            raise InputError(
                f"{kind}: an object has {len(properties)} properties, at most {MOST_PROPERTIES} are taken: "
                "split it"
            )


def _too_deep(kind: Kind = "json_schema") -> InputError:
    return InputError(f"{kind}: more than {DEEPEST} levels inside each other: make it flatter")


def _check_multiples(kind: Kind, text: str) -> None:
    """Limit the least common multiple of all multipleOf, also in the schemas of a grammar."""
    common = 1
    for number in set(re.findall(r'"multipleOf"\s*:\s*([-+.\deE]+)', text)):
        try:
            digits = int("".join(map(str, Decimal(number).normalize().as_tuple().digits)))
        except ArithmeticError:
            continue  # the compiler reports it
        common = math.lcm(common, digits)
    if common > LARGEST_MULTIPLE:
        raise InputError(
            f"{kind}: all multipleOf together ask for multiples of {common}, at most {LARGEST_MULTIPLE} "
            "is taken: ask for rounder ones"
        )


def _parts(schema: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every object and array of a schema with its path, level by level."""
    level: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while level:
        yield from level
        level = [
            ((*path, str(name)), inner)
            for path, part in level
            if isinstance(part, dict | list)
            for name, inner in (part.items() if isinstance(part, dict) else enumerate(part))
            if isinstance(inner, dict | list)
        ]
