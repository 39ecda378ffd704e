"""The parameters of a tool: a JSON schema as typed values, and the check of arguments against them.

Every supported schema can be followed while decoding, so every answer validates. Other keywords raise
InputError with the way out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hamburger_edge.errors import InputError
from hamburger_edge.support.values import check_text, safe_repr

Kind = Literal["string", "integer", "number", "choice"]

LARGEST_NUMBER = 2**53 - 1  # exact in JavaScript, too
DECIMALS = 12  # of a number
LONGEST_LIST = 1000

_ANNOTATIONS = {
    "$comment",
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
}
_OF_TYPE = {
    "string": set[str](),
    "boolean": set[str](),
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum"},
    "array": {"items", "minItems", "maxItems"},
}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # all but tab, line feed, carriage return
_FLATTEN = "make its properties arguments of their own"
_CHECK_YOURSELF = "leave it out, and check the value in your function"


@dataclass(frozen=True)
class Parameter:
    """A parameter whose values are scalars, or a list of them."""

    name: str
    kind: Kind
    required: bool = False
    nullable: bool = False
    choices: Mapping[str, Any] = field(default_factory=dict)  # text of a choice -> its value
    low: int = -LARGEST_NUMBER  # of integers and numbers
    high: int = LARGEST_NUMBER
    is_list: bool = False
    shortest: int = 0  # items of a list
    longest: int = LONGEST_LIST

    @property
    def positional(self) -> bool:
        """Whether the compact form has the value without the parameter's name."""
        return self.required and not self.nullable

    def checked(self, value: Any, where: str) -> Any:
        """Return the value in its normal form, or raise an error that names the place."""
        if not self.is_list:
            return self._checked_scalar(value, where)
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} must be a list, got {safe_repr(value)}")
        if not self.shortest <= len(value) <= self.longest:
            raise InputError(f"{where} must have {self.shortest} to {self.longest} items, got {len(value)}")
        return [self._checked_scalar(item, f"{where}[{index}]") for index, item in enumerate(value)]

    def _checked_scalar(self, value: Any, where: str) -> Any:
        if self.kind == "choice":
            for choice in self.choices.values():
                if same(choice, value):
                    return choice
            known = [json.dumps(choice, ensure_ascii=False) for choice in self.choices.values()]
            listed = ", ".join(dict.fromkeys(known))
            raise InputError(f"{where} must be one of {listed:.200}, got {safe_repr(value)}")
        if self.kind == "string":
            if not isinstance(value, str):
                raise InputError(f"{where} must be a text, got {safe_repr(value)}")
            if _CONTROL.search(value):
                raise InputError(f"{where} has a control character, got {safe_repr(value)}: leave it out")
            return check_text(value)
        return self._checked_number(value, where)

    def _checked_number(self, value: Any, where: str) -> int | float:
        kind = "a whole number" if self.kind == "integer" else "a number"
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"{where} must be {kind}, got {safe_repr(value)}")
        if not self.low <= value <= self.high:
            raise InputError(f"{where} must be {self.low} to {self.high}, got {safe_repr(value)}")
        if value == int(value):
            return int(value)
        if self.kind == "integer":
            raise InputError(f"{where} must be {kind}, got {safe_repr(value)}")
        if round(value, DECIMALS) != value:
            raise InputError(f"{where} must have at most {DECIMALS} decimals, got {value!r}: round it")
        return value


def same(one: Any, other: Any) -> bool:
    """Whether two scalars are the same JSON value: 1 equals 1.0, but not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def read_parameters(schema: Any, where: str) -> tuple[Parameter, ...]:
    """Return the parameters of a tool from the JSON schema of its arguments."""
    if schema is None:
        return ()
    if not isinstance(schema, Mapping):
        raise InputError(f"{where}: parameters must be a JSON schema, got {safe_repr(schema)}")
    known = {*_ANNOTATIONS, *("type", "properties", "required", "additionalProperties")}
    _only(schema, {*known, "$defs", "definitions", "$schema", "strict"}, f"{where}: parameters")
    if schema.get("type", "object") != "object":
        raise InputError(f'{where}: parameters must be of type "object", got {safe_repr(schema["type"])}')
    if isinstance(schema.get("additionalProperties"), Mapping):
        raise InputError(f"{where}: additionalProperties with a schema is not supported: name the properties")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise InputError(f"{where}: properties must be an object and required a list")
    if missing := sorted(map(str, set(required) - set(properties))):
        raise InputError(f"{where}: required argument {missing[0]!r} is not in properties: describe it")
    return tuple(
        _parameter(name, part, schema, required=name in required, where=f"{where}: {name}")
        for name, part in properties.items()
    )


def _parameter(name: str, part: Any, root: Mapping[str, Any], *, required: bool, where: str) -> Parameter:
    if not name or any(character in " ;\\\n" or character < " " for character in name):
        raise InputError(f"{where}: an argument's name must have no space, ; or \\: rename it")
    part, nullable = _resolved(part, root, where)
    is_list, shortest, longest = part.get("type") == "array", 0, LONGEST_LIST
    if is_list:
        _only(part, {"type", *_ANNOTATIONS, *_OF_TYPE["array"]}, where)
        shortest = _bound(part, "minItems", 0, where)
        longest = _bound(part, "maxItems", LONGEST_LIST, where)
        if not 0 <= shortest <= longest <= LONGEST_LIST:
            raise InputError(f"{where}: must have at most {LONGEST_LIST} items, minItems first: correct it")
        if "items" not in part:
            raise InputError(f"{where}: a list needs items: describe them")
        part, has_null = _resolved(part["items"], root, where)
        if has_null or part.get("type") == "array":
            raise InputError(f"{where}: items that are null or lists are not supported: use strings")
    kind, choices, low, high = _scalar(part, where)
    return Parameter(name, kind, required, nullable, choices, low, high, is_list, shortest, longest)


def _scalar(part: Mapping[str, Any], where: str) -> tuple[Kind, Mapping[str, Any], int, int]:
    """Return kind, choices and bounds of a scalar's schema."""
    values = [part["const"]] if "const" in part else part.get("enum")
    kind = part.get("type")
    if values is not None:
        _only(part, {"type", "const", "enum", *_ANNOTATIONS}, where)
        return "choice", _choices(values, where), 0, 0
    if kind == "object" or "properties" in part:
        raise InputError(f"{where}: an object as an argument is not supported: {_FLATTEN}")
    if kind not in _OF_TYPE or kind == "array":
        raise InputError(f"{where}: type {safe_repr(kind)} is not supported: use string, number or enum")
    _only(part, {"type", *_ANNOTATIONS, *_OF_TYPE[kind]}, where)
    if kind == "boolean":
        return "choice", {"true": True, "false": False}, 0, 0
    if kind == "string":
        return "string", {}, 0, 0
    low = _bound(part, "minimum", -LARGEST_NUMBER, where)
    high = _bound(part, "maximum", LARGEST_NUMBER, where)
    low = max(low, _bound(part, "exclusiveMinimum", low - 1, where) + 1)
    high = min(high, _bound(part, "exclusiveMaximum", high + 1, where) - 1)
    if not -LARGEST_NUMBER <= low <= high <= LARGEST_NUMBER:
        raise InputError(f"{where}: no number is {low} to {high} and exact as a double: correct the bounds")
    return ("integer" if kind == "integer" else "number"), {}, low, high


def _choices(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, list) or not values:
        raise InputError(f"{where}: enum must be a list of values, got {safe_repr(values)}")
    choices: dict[str, Any] = {}
    for value in values:
        if not isinstance(value, str | int | float):
            raise InputError(f"{where}: an enum of {safe_repr(value)} is not supported: use texts or numbers")
        text = value if isinstance(value, str) else json.dumps(value)
        if text in choices or not text:
            raise InputError(f"{where}: the enum has {safe_repr(value)} twice, or an empty text: correct it")
        choices[check_text(text)] = value
    return choices


def _resolved(part: Any, root: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], bool]:
    """Follow references and take null out of a schema: return the rest, and whether it may be null."""
    nullable = False
    for _ in range(8):
        if not isinstance(part, Mapping):
            raise InputError(f"{where}: must be a JSON schema, got {safe_repr(part)}")
        names = [keyword for keyword in ("anyOf", "oneOf", "allOf") if keyword in part]
        if "$ref" in part:
            part = _referenced(part["$ref"], root, where)
        elif names:
            options = [option for option in part[names[0]] if option != {"type": "null"}]
            nullable |= len(options) < len(part[names[0]])
            if len(options) != 1:
                raise InputError(f"{where}: {names[0]} of {len(options)} types is not supported: choose one")
            [part] = options
        elif isinstance(part.get("type"), list):
            kinds = [kind for kind in part["type"] if kind != "null"]
            nullable |= len(kinds) < len(part["type"])
            if len(kinds) != 1:
                raise InputError(f"{where}: {len(kinds)} types at once are not supported: choose one")
            part = {**part, "type": kinds[0]}
        elif None in (values := part.get("enum") or ()):
            nullable, part = True, {**part, "enum": [value for value in values if value is not None]}
        else:
            return part, nullable
    raise InputError(f"{where}: references go around in a circle: correct them")


def _referenced(reference: Any, root: Mapping[str, Any], where: str) -> Any:
    found: Any = root
    for name in str(reference).removeprefix("#/").split("/"):
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None or not str(reference).startswith("#/"):
        raise InputError(f"{where}: $ref {safe_repr(reference)} is not in this schema: write the type itself")
    return found


def _bound(part: Mapping[str, Any], keyword: str, default: int, where: str) -> int:
    value = part.get(keyword, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise InputError(f"{where}: {keyword} must be a whole number, got {safe_repr(value)}")
    return int(value)


def _only(part: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(part) - known):
        raise InputError(f"{where}: {unknown[0]!r} is not supported: {_CHECK_YOURSELF}")
