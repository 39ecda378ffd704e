"""Read the parameters of a tool from a JSON schema.

Every supported schema can be followed while decoding, so every answer validates. Other keywords raise
InputError with the way out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hamburger_edge.calls.parameters import LARGEST_NUMBER, LONGEST_LIST, Kind, Parameter
from hamburger_edge.errors import InputError
from hamburger_edge.support.values import check_text, safe_repr

MOST_LEVELS = 3  # objects inside each other
MOST_PARAMETERS = 1000  # of a tool, with those of its objects
MOST_OBJECTS = 8  # minItems of a list of objects

ANNOTATIONS = {  # keywords that allow and refuse nothing
    "$comment",
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
}
_OF_OBJECT = {"type", "properties", "required", "additionalProperties"}
_OF_TYPE = {
    "string": set[str](),
    "boolean": set[str](),
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum"},
    "array": {"items", "minItems", "maxItems"},
}
_CHECK_YOURSELF = "leave it out, and check the value in your function"


def read_parameters(schema: Any, where: str) -> tuple[Parameter, ...]:
    """Return the parameters of a tool from the JSON schema of its arguments."""
    if schema is None:
        return ()
    if not isinstance(schema, Mapping):
        raise InputError(f"{where}: parameters must be a JSON schema, got {safe_repr(schema)}")
    _only(
        schema,
        {*ANNOTATIONS, *_OF_OBJECT, "$defs", "definitions", "$schema", "strict"},
        f"{where}: parameters",
    )
    if schema.get("type", "object") != "object":
        raise InputError(f'{where}: parameters must be of type "object", got {safe_repr(schema["type"])}')
    return _SchemaReader(schema, where).properties(schema, where, 0)


class _SchemaReader:
    """Reads the schema of one tool."""

    def __init__(self, root: Mapping[str, Any], where: str) -> None:
        self._root, self._where = root, where
        self._count = 0

    def properties(self, schema: Mapping[str, Any], where: str, level: int) -> tuple[Parameter, ...]:
        """Return the properties of an object as parameters. `level` counts the objects around it."""
        if isinstance(schema.get("additionalProperties"), Mapping):
            raise InputError(
                f"{where}: additionalProperties with a schema is not supported: name the properties"
            )
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise InputError(f"{where}: properties must be an object and required a list")
        if missing := sorted(map(str, set(required) - set(properties))):
            raise InputError(f"{where}: required argument {missing[0]!r} is not in properties: describe it")
        self._count += len(properties)
        if self._count > MOST_PARAMETERS:
            raise InputError(f"{self._where}: more than {MOST_PARAMETERS} parameters: leave some out")
        return tuple(
            self._parameter(name, part, name in required, f"{where}: {name}", level)
            for name, part in properties.items()
        )

    def _parameter(self, name: str, part: Any, required: bool, where: str, level: int) -> Parameter:
        if not name or any(character in " ;\\\n" or character < " " for character in name):
            raise InputError(f"{where}: an argument's name must have no space, ; or \\: rename it")
        part, nullable = _resolved(part, self._root, where)
        is_list, shortest, longest = part.get("type") == "array", 0, LONGEST_LIST
        if is_list:
            _only(part, {"type", *ANNOTATIONS, *_OF_TYPE["array"]}, where)
            shortest = _bound(part, "minItems", 0, where)
            longest = _bound(part, "maxItems", LONGEST_LIST, where)
            if not 0 <= shortest <= longest <= LONGEST_LIST:
                raise InputError(
                    f"{where}: must have at most {LONGEST_LIST} items, minItems first: correct it"
                )
            if "items" not in part:
                raise InputError(f"{where}: a list needs items: describe them")
            part, has_null = _resolved(part["items"], self._root, where)
            if has_null or part.get("type") == "array":
                raise InputError(f"{where}: items that are null or lists are not supported: use strings")
        if part.get("type") == "object" or "properties" in part:
            properties = self._object(part, where, level + 1)
            if shortest > MOST_OBJECTS:
                raise InputError(
                    f"{where}: minItems of objects must be at most {MOST_OBJECTS}, got {shortest}"
                )
            return Parameter(
                name,
                "object",
                required,
                nullable,
                is_list=is_list,
                shortest=shortest,
                longest=longest,
                properties=properties,
            )
        kind, choices, low, high = _scalar(part, where)
        return Parameter(name, kind, required, nullable, choices, low, high, is_list, shortest, longest)

    def _object(self, part: Mapping[str, Any], where: str, level: int) -> tuple[Parameter, ...]:
        if level > MOST_LEVELS:
            raise InputError(
                f"{where}: more than {MOST_LEVELS} objects inside each other: make properties arguments"
            )
        _only(part, {*ANNOTATIONS, *_OF_OBJECT}, where)
        if not part.get("properties"):
            raise InputError(f"{where}: an object needs properties: name them, or use a string")
        return self.properties(part, where, level)


def _scalar(part: Mapping[str, Any], where: str) -> tuple[Kind, Mapping[str, Any], int, int]:
    """Return kind, choices and bounds of a scalar's schema."""
    values = [part["const"]] if "const" in part else part.get("enum")
    kind = part.get("type")
    if values is not None:
        _only(part, {"type", "const", "enum", *ANNOTATIONS}, where)
        return "choice", _choices(values, where), 0, 0
    if kind not in _OF_TYPE or kind == "array":
        raise InputError(f"{where}: type {safe_repr(kind)} is not supported: use string, number or enum")
    _only(part, {"type", *ANNOTATIONS, *_OF_TYPE[kind]}, where)
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
    part: Any = root
    for name in str(reference).removeprefix("#/").split("/"):
        part = part.get(name) if isinstance(part, Mapping) else None
    if part is None or not str(reference).startswith("#/"):
        raise InputError(f"{where}: $ref {safe_repr(reference)} is not in this schema: write the type itself")
    return part


def _bound(part: Mapping[str, Any], keyword: str, default: int, where: str) -> int:
    value = part.get(keyword, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise InputError(f"{where}: {keyword} must be a whole number, got {safe_repr(value)}")
    return int(value)


def _only(part: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(part) - known):
        raise InputError(f"{where}: {unknown[0]!r} is not supported: {_CHECK_YOURSELF}")
