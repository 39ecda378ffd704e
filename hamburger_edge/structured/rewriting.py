"""A JSON schema as it is compiled: formats as patterns, integers bounded.

llguidance allows any number of digits in an integer without limits, and a small model may repeat a digit
until its tokens end. So such an integer gets limits that fit int64 and are exact as doubles, to which
llguidance converts limits. A `number` gets none, because llguidance allows no exponent within limits.
"""

from __future__ import annotations

import json
from typing import Any

from hamburger_edge.calls.parameter_schema import ANNOTATIONS
from hamburger_edge.structured.formats import with_pattern

LARGEST_INTEGER = 9 * 10**18

_LIMITS = {"minimum": -LARGEST_INTEGER, "maximum": LARGEST_INTEGER}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}  # name -> schema
_VALUES = {"const", "enum", "default", "examples"}  # keywords that hold values, not schemas


def rewritten(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as it is compiled.

    Plain integers become references to one definition, because each range takes a millisecond to compile.
    """
    definitions = schema.get("$defs", {})
    if not isinstance(definitions, dict):  # the compiler reports it
        return _schema(schema, None)
    name = "integer"
    while name in definitions:
        name += "_"
    reference = {"$ref": f"#/$defs/{name}"}
    changed = _schema(schema, reference)
    if reference["$ref"] not in json.dumps(changed):
        return changed
    return changed | {"$defs": changed.get("$defs", {}) | {name: {"type": "integer", **_LIMITS}}}


def _schema(schema: dict[str, Any], reference: dict[str, str] | None) -> dict[str, Any]:
    """`reference`: of a plain integer; None: give it limits in its place."""
    changed = {key: _part(key, part, reference) for key, part in schema.items()}
    return _bounded(with_pattern(changed), reference)


def _part(keyword: str, part: Any, reference: dict[str, str] | None) -> Any:
    if keyword in _VALUES:
        return part
    if keyword in _NAMED and isinstance(part, dict):
        return {name: _nested(one, reference) for name, one in part.items()}
    return _nested(part, reference)


def _nested(part: Any, reference: dict[str, str] | None) -> Any:
    if isinstance(part, list):
        return [_nested(one, reference) for one in part]
    if not isinstance(part, dict):
        return part
    return _schema(part, None if "$id" in part else reference)  # with an $id, "#" is another document


def _bounded(schema: dict[str, Any], reference: dict[str, str] | None) -> dict[str, Any]:
    """Return the schema with the limits that its integers lack."""
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "integer" not in kinds or "number" in kinds or schema.keys() & {"const", "enum"}:
        return schema
    if reference is not None and kinds == ["integer"] and schema.keys() <= {"type", *ANNOTATIONS}:
        return {key: value for key, value in schema.items() if key != "type"} | reference
    own = schema.keys()
    return schema | {
        name: limit for name, limit in _LIMITS.items() if not own & {name, f"exclusive{name.title()}"}
    }
