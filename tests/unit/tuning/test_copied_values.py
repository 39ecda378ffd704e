"""The fields of answers whose strings copy the prompt, measured from examples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.home_tools import CATALOGUE

from hamburger_edge.tuning.data.copied_values import copied_fields, not_in_prompt
from hamburger_edge.tuning.data.examples import Example, Turn

WORDS = [f"song{number}" for number in range(40)]


def example(prompt: str, answer: Any, system: str | None = None) -> Example:
    return Example((Turn(prompt, json.dumps(answer, ensure_ascii=False)),), system)


def plays(**more: Any) -> list[Example]:
    return [
        example(f"play {word} by Bo", {"intent": "Play", "slots": {"song": word, **more}}) for word in WORDS
    ]


def test_field_with_many_different_spans_of_its_prompts_is_copied() -> None:
    assert copied_fields(plays()) == ("slots.song",)


def test_field_with_few_different_strings_is_a_closed_list() -> None:
    assert copied_fields(plays(artist="Bo")) == ("slots.song",)


def test_field_with_few_cases_is_free() -> None:
    assert copied_fields(plays()[:19]) == ()
    assert copied_fields(plays()[:20]) == ("slots.song",)


@pytest.mark.parametrize(("others", "expected"), [(1, ("song",)), (2, ())])
def test_share_of_spans_that_makes_a_field_copied_is_995_of_a_thousand(
    others: int, expected: tuple[str, ...]
) -> None:
    examples = [example(f"play {word}", {"song": word}) for word in WORDS * 6]
    changed = [example("play it", {"song": "Song"})] * others
    assert copied_fields([*examples, *changed]) == expected


def test_part_of_a_word_is_no_span() -> None:
    assert copied_fields([example(f"play {word}s", {"song": word}) for word in WORDS]) == ()


def test_strings_copy_the_system_text_and_earlier_turns_too() -> None:
    examples = [
        Example((Turn(f"I like {word}", "{}"), Turn("play it", json.dumps({"song": word}))))
        for word in WORDS[:20]
    ]
    more = [example("play it", {"song": word}, f"The user likes {word}.") for word in WORDS[20:]]
    assert copied_fields([*examples, *more]) == ("song",)


def test_answers_that_are_no_json_objects_have_no_copied_fields() -> None:
    assert copied_fields([example(f"play {word}", [{"song": word}]) for word in WORDS]) == ()
    assert copied_fields([Example((Turn(f"play {word}", word),)) for word in WORDS]) == ()


def test_field_of_calls_is_an_argument_of_any_tool() -> None:
    examples = [
        Example((Turn(f"on {word}", f"TurnOn area {word}; name lamp\nLightSet 5; area {word}"),))
        for word in WORDS[:10]
    ]
    more = [Example((Turn(f"for {word}, ann", f"AddEvent the {word}; ( {word}), ( ann)"),)) for word in WORDS]
    assert copied_fields(examples, CATALOGUE) == ("area",)
    assert copied_fields(more, CATALOGUE) == ("guests.name",)


def test_items_of_a_list_copy_the_prompt_but_for_a_first_bracket() -> None:
    examples = [Example((Turn(f"buy {word}, [x]", f"AddItems {word}, {word}"),)) for word in WORDS]
    brackets = [Example((Turn("buy [x]", "AddItems \\[x]"),))]
    assert copied_fields(examples, CATALOGUE) == ("items",)
    assert copied_fields(examples + brackets, CATALOGUE) == ()


def test_calls_with_a_string_that_the_prompt_lacks_are_counted() -> None:
    right = "LightSet 5; area hall"
    answers = [("dim the hall", right, right), ("dim the hall", right, "LightSet 5; area hallway")]
    assert not_in_prompt([*answers, ("hi", "-", "-")], CATALOGUE) == 1


def test_answers_with_a_string_that_the_prompt_lacks_are_counted_by_fields_that_copy() -> None:
    right = json.dumps({"intent": "Play", "album": "Jersey Boys"})
    answers = [
        ("play Jersey Boys", right, right),
        ("play Jersey Boys", right, right.replace("Jersey", "Jerry")),
        ("play Jersey Boys", right, right.replace('"Play"', '"Stop"')),
        ("play Jersey Boys", right, '{"album": "Jer'),
        ("play Jersey Boys", right, right.replace('"album"', '"song"').replace("Jersey", "Jerry")),
    ]
    assert not_in_prompt(answers) == 1
