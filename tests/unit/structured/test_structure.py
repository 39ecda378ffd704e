"""Supported structures; others are refused in one line, in little time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest
from helpers.grammar_walks import start, walk
from helpers.places import PROGRAMS, environment
from helpers.schemas import DEEP, WIDE
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.errors import InputError, MissingExtraError
from hamburger_edge.structured.grammar import Grammars
from hamburger_edge.structured.structure import LARGEST, Structure

TAGS = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}


def refusal(grammars: Grammars, **options: Any) -> str:
    try:
        walk(start(grammars, **options), lambda allowed: allowed[0], most=20)
    except InputError as error:
        return str(error)
    return ""


class Car(pydantic.BaseModel):
    doors: int = pydantic.Field(ge=2, le=5)
    sold: bool


def test_a_schema_is_a_dictionary_or_its_text_or_a_pydantic_model() -> None:
    schema = {"type": "object", "properties": {"é": {"enum": [1, "2"]}}}
    assert Structure.of(json_schema=schema) == Structure.of(json_schema=json.dumps(schema, indent=1))
    assert Structure.of(json_schema=Car) == Structure.of(json_schema=Car.model_json_schema())


@pytest.mark.parametrize(
    "options",
    [
        {"json_schema": {"const": "é"}},
        {"json_schema": {"schema": TAGS, "strict": False}},  # leaves out what is not supported
        {"grammar": 'start: "a"'},
    ],
)
def test_structures_survive_as_options(grammars: Grammars, options: dict[str, Any]) -> None:
    structure = Structure.of(**options)
    assert structure
    assert Structure.of(**json.loads(json.dumps(structure.to_options()))) == structure
    assert refusal(grammars, **options) == ""


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"regex": "\ud800"}, "regex"),
    ({"grammar": "start: %json " + json.dumps(WIDE)}, "1001 properties"),
    ({"grammar": "start: %json " + json.dumps(DEEP)}, "64 levels"),
    ({"regex": "[0-9"}, '"[0-9", at character 1'),
    ({"regex": "a(?=b)"}, "look-around"),
    ({"regex": ""}, "regex must be a text"),
    ({"regex": r"[^\s\S]"}, "allows no answer"),
    ({"grammar": "start: foo"}, "grammar: line 1, column 8"),
    ({"json_schema": "{"}, "json_schema is not valid JSON"),
    ({"json_schema": "[]"}, "json_schema must be an object"),
    ({"json_schema": {"enum": [object]}}, "json_schema is not plain JSON"),
    ({"json_schema": TAGS}, '"uniqueItems" (at #/properties/tags)'),
    ({"json_schema": {"items": {"type": "string", "format": "colour"}}}, 'format "colour" (at #/items)'),
    ({"json_schema": {"oneOf": [{"type": "integer"}, {"minimum": 3}]}}, "overlap (at #)"),
    ({"json_schema": {"type": "colour"}}, "invalid type: colour"),
    ({"json_schema": {"$ref": "#/$defs/none"}}, "pointer '/$defs/none'"),
    ({"json_schema": {}, "regex": "a"}, "json_schema and regex"),
    ({"regex": "a" * (LARGEST + 1)}, "65537 characters"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=range(len(REFUSED)))
def test_unusable_structure_is_refused_in_one_line(
    grammars: Grammars, options: dict[str, Any], message: str
) -> None:
    said = refusal(grammars, **options)
    assert message in said
    assert "\n" not in said
    assert len(said) < 300


keywords = st.sampled_from(
    [
        *("type", "properties", "required", "items", "prefixItems", "minItems", "enum", "const"),
        *("anyOf", "oneOf", "allOf", "not", "if", "$ref", "$defs", "pattern", "format", "minLength"),
        *("maximum", "multipleOf", "additionalProperties", "patternProperties", "minProperties"),
        *("$schema", "title"),
    ]
)
odd = st.recursive(
    st.sampled_from([0, -1, 2.5, 10**20, True, None, "", "string", "object", "array", "(", "#", "#/$defs/a"]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keywords, inner, max_size=4)),
)


@settings(max_examples=200)
@given(schema=st.dictionaries(keywords, odd, max_size=4), strict=st.booleans())
def test_odd_schemas_work_or_are_refused(grammars: Grammars, schema: dict[str, Any], strict: bool) -> None:
    assert "\n" not in refusal(grammars, json_schema={"schema": schema, "strict": strict})


@settings(max_examples=200)
@given(
    text=st.text(alphabet='abcxy()[]{}*+?|\\^$.-,19:"/&~<>é\n ', min_size=1),
    kind=st.sampled_from(["regex", "grammar"]),
)
def test_odd_texts_work_or_are_refused(grammars: Grammars, text: str, kind: str) -> None:
    assert "\n" not in refusal(grammars, **{kind: text})
    assert "\n" not in refusal(grammars, grammar=f"start: {text}")


def test_hostile_schemas_stay_within_time_and_memory(tokenizer_path: Path) -> None:
    """A separate process has little memory and one minute of processor time for all schemas."""
    program = [sys.executable, PROGRAMS / "schema_bombs.py", tokenizer_path]
    done = subprocess.run(program, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ended) == 43
    for name, how in ended:
        assert how == "works" or how.startswith("InputError: "), name


def test_without_llguidance_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    structure = Structure.of(regex="a")
    assert structure
    with pytest.raises(MissingExtraError, match=r"llguidance is not installed: .*'\.\[structured\]'"):
        Grammars(lambda: "", 1, []).start(structure)
