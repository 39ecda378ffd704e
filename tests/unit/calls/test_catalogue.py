"""Tools from JSON, and the check of calls against them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.home_tools import CATALOGUE, LIGHT, STRING, TOOLS, described, function

from hamburger_edge.calls.catalogue import CallLimits, read_catalogue, read_catalogue_file
from hamburger_edge.calls.compact_form import checked_calls
from hamburger_edge.errors import InputError

SCHEMA = {"type": "object", "properties": {"area": STRING}}


@pytest.mark.parametrize(
    "form",
    [
        [{"type": "function", "function": {"name": "Dim", "parameters": SCHEMA}}],
        [{"name": "Dim", "parameters": SCHEMA}],
        {"tools": [{"name": "Dim", "description": "", "inputSchema": SCHEMA}]},
        {"title": "Dim", **SCHEMA},
    ],
)
def test_forms_of_openai_mcp_and_json_schema_give_the_same_tool(form: Any) -> None:
    assert read_catalogue(form) == read_catalogue([function("Dim", area=STRING)])


def test_catalogue_survives_json(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(CATALOGUE.to_json()))
    assert read_catalogue_file(path) == CATALOGUE


def test_references_of_a_schema_are_followed() -> None:
    schema = {
        "type": "object",
        "properties": {"mode": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}], "default": None}},
        "$defs": {"Mode": {"enum": ["eco", "away"], "type": "string"}},
    }
    [mode] = read_catalogue([{"name": "Set", "parameters": schema}]).tools[0].parameters
    assert (mode.nullable, list(mode.choices)) == (True, ["eco", "away"])


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ({"type": "object"}, "Dim: place: an object needs properties: name them, or use a string"),
        (
            described((), x=described((), y=described((), z=described((), w=STRING)))),
            "z: more than 3 objects inside",
        ),
        (described((), x={"type": "string", "pattern": "a"}), "Dim: place: x: 'pattern' is not supported"),
        (described(("y",), x=STRING), "Dim: place: required argument 'y' is not in properties"),
        (described((), **{f"x{n}": STRING for n in range(1000)}), "Dim: more than 1000 parameters"),
        (
            {"type": "array", "minItems": 9, "items": described((), x=STRING)},
            "place: minItems of objects must be at most 8, got 9",
        ),
        ({"type": "string", "pattern": "a+"}, "Dim: place: 'pattern' is not supported: leave it out"),
        ({"type": ["string", "integer"]}, "Dim: place: 2 types at once are not supported: choose one"),
        (
            {"anyOf": [STRING, {"type": "integer"}]},
            "Dim: place: anyOf of 2 types is not supported: choose one",
        ),
        ({"type": "array"}, "Dim: place: a list needs items: describe them"),
        ({"type": "array", "items": {"type": "object"}}, "Dim: place: an object needs properties"),
        ({"$ref": "#/properties/place"}, "Dim: place: references go around in a circle"),
        ({"$ref": "#/$defs/Place"}, "Dim: place: \\$ref '#/\\$defs/Place' is not in this schema"),
        ({"enum": []}, "Dim: place: enum must be a list of values"),
        ({"enum": ["1", 1]}, "Dim: place: the enum has 1 twice"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "Dim: place: no number is 3 to 2"),
        ({}, "Dim: place: type None is not supported"),
    ],
)
def test_unsupported_schema_is_refused_with_the_way_out(part: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        read_catalogue([function("Dim", place=part)])


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        ([], "tools: expected a list of tools"),
        ([{"name": "turn on"}], "tools\\[0\\]: a tool's name must be 1 to 64 letters"),
        ([{"name": "a"}, {"name": "a"}], "tools: a is given twice"),
        ([{"name": "a", "parameters": {"type": "string"}}], "tools\\[0\\] a: parameters must be of type"),
        ([function("a", ("b",))], "required argument 'b' is not in properties"),
        ([function("a", **{"b c": STRING})], "an argument's name must have no space"),
    ],
)
def test_malformed_tools_are_refused(tools: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        read_catalogue(tools)


def test_checked_arguments_are_in_the_catalogues_order_without_optional_nulls() -> None:
    given = [{"name": "TurnOn", "arguments": {"name": "lamp", "area": "hall", "domain": None}}]
    [call] = checked_calls(given, CATALOGUE, "calls")
    assert list(call.arguments.items()) == [("area", "hall"), ("name", "lamp")]


def event(guests: list[Any]) -> dict[str, Any]:
    return {"name": "AddEvent", "arguments": {"title": "tea", "guests": guests}}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            {"name": "TurnUp", "arguments": {}},
            "calls\\[0\\].name: there is no tool 'TurnUp' \\(known: TurnOn,",
        ),
        ({"name": "LightSet", "arguments": {}}, "calls\\[0\\].arguments: LightSet needs the argument 'bri"),
        (
            LIGHT | {"arguments": {"brightness": "half"}},
            "arguments.brightness must be a whole number, got 'half'",
        ),
        (LIGHT | {"arguments": {"brightness": 101}}, "arguments.brightness must be 0 to 100, got 101"),
        (LIGHT | {"arguments": {"brightness": True}}, "brightness must be a whole number, got True"),
        ({"name": "TurnOn", "arguments": {"domain": "door"}}, 'domain must be one of "light", "fan", '),
        (
            {"name": "TurnOn", "arguments": {"room": "x"}},
            "TurnOn has no argument 'room' \\(known: area, name",
        ),
        ({"name": "TurnOn", "arguments": {"area": 3}}, "arguments.area must be a text, got 3"),
        ({"name": "TurnOn", "arguments": {"area": "a\x00"}}, "arguments.area has a control character"),
        ({"name": "Days", "arguments": {"days": []}}, "days must have 1 to 1000 items, got 0"),
        ({"name": "Days", "arguments": {"days": ["wed"]}}, "days\\[0\\] must be one of"),
        ({"name": "Climate", "arguments": {"degrees": 0.1234567890123, "room": None}}, "at most 12 decimals"),
        ({"function": "x"}, "calls\\[0\\] must be"),
        (event([{"age": 3}]), "arguments.guests\\[0\\]: the object needs the argument 'name'"),
        (event([{"name": "A", "age": 121}]), "guests\\[0\\].age must be 0 to 120, got 121"),
        (event([{"name": "A", "job": "b"}]), "the object has no argument 'job' \\(known: age, name, tags"),
        (event(["A"]), "guests\\[0\\] must be an object, got 'A'"),
    ],
)
def test_call_that_does_not_fit_its_tool_is_refused_at_its_place(call: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        checked_calls([call], CATALOGUE, "calls")


def test_limits_keep_tools_and_values() -> None:
    limits = CallLimits.of({"names": {"area": ["Kitchen", "Hall"]}, "tools": ["TurnOn"]})
    [tool] = CATALOGUE.limited(limits).tools
    assert tool.parameters[0].choices == {
        "hall": "Hall",
        "kitchen": "Kitchen",
        "Kitchen": "Kitchen",
        "Hall": "Hall",
    }
    assert tool.parameters[1] == CATALOGUE.tools[0].parameters[1]
    assert CallLimits.of(limits.to_json()) == limits


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"names": {"color": ["red"]}}, "names: no argument 'color' takes a text \\(known: "),
        ({"names": {"area": []}}, "names: area must be a list of texts, got"),
        ({"tools": ["Fly"]}, "tools: there is no tool 'Fly'"),
        ({"tool": ["Fly"]}, "calls: unknown key 'tool'"),
    ],
)
def test_limits_outside_the_catalogue_are_refused(limits: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        CATALOGUE.limited(CallLimits.of(limits))


def test_limit_names_the_text_of_an_object_by_its_path() -> None:
    for path in ("guests.name", "AddEvent.guests.name"):
        event = CATALOGUE.limited(CallLimits.of({"names": {path: ["Ann"]}, "tools": ["AddEvent"]})).tools[0]
        guests = event.parameters[1]
        assert [parameter.kind for parameter in guests.properties] == ["integer", "choice", "string"]


def test_name_of_a_tool_limits_only_its_argument() -> None:
    limited = CATALOGUE.limited(CallLimits.of({"names": {"TurnOn.area": ["Kitchen"]}}))
    assert limited.tools[0].parameters[0].kind == "choice"
    assert limited.tools[2] == read_catalogue(TOOLS).tools[2]
