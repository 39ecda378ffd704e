"""Check answers: validity under the JSON schema, and equality with the expected answer."""

from __future__ import annotations

import json

from hamburger_edge.errors import InputError, require
from hamburger_edge.support.strict import canonical_json


class Validator:
    """A JSON schema, checked with the package jsonschema."""

    def __init__(self, schema: str):
        jsonschema = require("jsonschema", "bench")
        parsed = json.loads(schema)
        kind = jsonschema.validators.validator_for(parsed)
        try:
            kind.check_schema(parsed)
        except jsonschema.SchemaError as error:
            raise InputError(f"the JSON schema is not one: {error.message}") from error
        self._validator = kind(parsed)

    def accepts(self, text: str) -> bool:
        try:
            return bool(self._validator.is_valid(json.loads(text)))
        except (ValueError, RecursionError):
            return False


def right(text: str, expected: str) -> bool:
    """Compare as JSON if `expected` is JSON, else as text without surrounding white space."""
    wanted = canonical_json(expected)
    return text.strip() == expected.strip() if wanted is None else canonical_json(text) == wanted
