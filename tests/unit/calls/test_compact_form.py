"""Calls as text, and the text as calls again."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.home_tools import CATALOGUE, LIGHT, calls
from hypothesis import given, settings

from hamburger_edge.calls.catalogue import CallLimits
from hamburger_edge.calls.compact_form import checked_calls, encode, parse
from hamburger_edge.errors import InputError


@settings(max_examples=150)
@given(given=calls)
def test_parsed_text_is_the_encoded_calls(given: list[dict[str, Any]]) -> None:
    checked = checked_calls(given, CATALOGUE, "calls")
    parsed = parse(encode(checked, CATALOGUE), CATALOGUE)
    assert parsed == checked
    assert [list(call.arguments) for call in parsed] == [list(call.arguments) for call in checked]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "-"),
        ([LIGHT], "LightSet 50; area kitchen"),
        ([LIGHT, {"name": "TurnOnAll", "arguments": {}}], "LightSet 50; area kitchen\nTurnOnAll"),
        ([{"name": "AddItems", "arguments": {"items": ["a, b", "[c"]}}], "AddItems a\\, b, \\[c"),
        ([{"name": "AddItems", "arguments": {"items": ["[]"]}}], "AddItems \\[]"),
        ([{"name": "AddItems", "arguments": {"items": []}}], "AddItems []"),
        ([{"name": "AddItems", "arguments": {"items": [""]}}], "AddItems "),
        ([{"name": "TurnOn", "arguments": {"area": "a;\n b"}}], "TurnOn area a\\;\\n b"),
        ([{"name": "Climate", "arguments": {"degrees": 21.0, "room": None}}], "Climate 21"),
        ([{"name": "AddEvent", "arguments": {"title": "tea (4)", "guests": []}}], "AddEvent tea (4); []"),
        (
            [{"name": "AddEvent", "arguments": {"title": "tea", "guests": [{"name": "Ann (2)", "age": 3}]}}],
            "AddEvent tea; ( Ann (2\\); age 3)",
        ),
        (
            [
                {
                    "name": "AddEvent",
                    "arguments": {
                        "title": "tea",
                        "guests": [{"name": "Ann", "tags": ["a)", "b"]}, {"name": "Bob"}],
                        "place": {"room": None, "seats": [{}, {"row": "b,;", "number": 2}]},
                    },
                }
            ],
            "AddEvent tea; ( Ann; tags a\\), b), ( Bob); place ( (), ( row b,\\;; number 2))",
        ),
        ([{"name": "Climate", "arguments": {"degrees": 1e-7, "room": "x"}}], "Climate 0.0000001; room x"),
    ],
)
def test_text_has_the_fewest_marks(given: list[dict[str, Any]], text: str) -> None:
    checked = checked_calls(given, CATALOGUE, "calls")
    assert encode(checked, CATALOGUE) == text
    assert parse(text, CATALOGUE) == checked


def test_allowed_name_is_returned_as_listed() -> None:
    limited = CATALOGUE.limited(CallLimits.of({"names": {"area": ["Kids Room"]}}))
    assert parse("TurnOn area kids room", limited) == parse("TurnOn area Kids Room", limited)
    assert parse("TurnOn area kids room", limited)[0].arguments == {"area": "Kids Room"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "there is no tool ''"),
        ("Fly", "there is no tool 'Fly'"),
        ("LightSet half", "brightness must be a whole number, got 'half'"),
        ("TurnOn name x; area y", "has an unknown argument, or one out of order"),
        ("TurnOn area x;name y", "has no space before an argument"),
        ("AddEvent tea; Ann", "has no \\( before an object"),
        ("AddEvent tea; [], ( Ann)", "has text after its last argument"),
        ("AddEvent tea; ( Ann", "has no \\) after an object"),
    ],
)
def test_text_of_another_form_is_refused(text: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        parse(text, CATALOGUE)
