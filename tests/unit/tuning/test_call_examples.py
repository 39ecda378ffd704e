"""Examples of calls: their forms, and the errors of wrong ones with their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.home_tools import CATALOGUE, LIGHT, TOOLS

from hamburger_edge.calls.compact_form import checked_calls, encode
from hamburger_edge.errors import InputError
from hamburger_edge.tuning.data.augment import NO_COPY, Augmented, augmented, call_form
from hamburger_edge.tuning.data.examples import Example, Turn, read_examples

SHORT = {"prompt": "half light", "calls": [LIGHT]}
USER = {"role": "user", "content": "half light"}
NONE = {"prompt": "hello", "calls": []}


def said(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    functions = [{"name": call["name"], "arguments": json.dumps(call["arguments"])} for call in calls]
    tool_calls = [{"id": "1", "type": "function", "function": function} for function in functions]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls, **more}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_short_form_and_messages_give_the_same_example(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", SHORT, NONE, {"messages": [USER, said(LIGHT)], "tools": TOOLS})
    examples = read_examples(path, CATALOGUE)
    half, nothing = Turn("half light", "LightSet 50; area kitchen"), Turn("hello", "-")
    assert examples.examples == (Example((half,)), Example((nothing,)))
    assert (examples.duplicates, examples.catalogue) == (1, CATALOGUE)


def test_tools_of_the_rows_form_the_catalogue(tmp_path: Path) -> None:
    rows = [{"messages": [USER, said(LIGHT)], "tools": [tool]} for tool in (TOOLS[2], TOOLS[0])]
    assert [tool.name for tool in read_examples(lines(tmp_path / "x.jsonl", rows[0])).catalogue.tools] == [
        "LightSet"
    ]  # type: ignore[union-attr]
    rows[1]["messages"][1] = said({"name": "TurnOn", "arguments": {}})
    catalogue = read_examples(lines(tmp_path / "x.jsonl", *rows)).catalogue
    assert catalogue is not None
    assert [tool.name for tool in catalogue.tools] == ["LightSet", "TurnOn"]


def test_text_of_an_assistant_is_no_call_and_results_are_left_out(tmp_path: Path) -> None:
    refused = {"role": "assistant", "content": "I cannot do that.", "weight": 0}
    result = [
        {"role": "tool", "content": "ok", "tool_call_id": "1"},
        {"role": "assistant", "content": "Done."},
    ]
    row = {"messages": [USER, refused, USER, said(LIGHT), *result]}
    [example] = read_examples(lines(tmp_path / "x.jsonl", row), CATALOGUE).examples
    assert [(turn.answer, turn.learned) for turn in example.turns] == [
        ("-", False),
        ("LightSet 50; area kitchen", True),
    ]


def test_calls_of_a_table_are_json(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('prompt,calls\nhalf light,"[{""name"": ""TurnOnAll""}]"\n')
    assert read_examples(path, CATALOGUE).examples[0].answer == "TurnOnAll"


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"prompt": "x", "calls": [{"name": "Fly"}]}, r"line 2: calls\[0\].name: there is no tool 'Fly'"),
        (
            {"prompt": "x", "calls": [LIGHT | {"arguments": {}}]},
            r"line 2: calls\[0\].arguments: LightSet needs",
        ),
        ({"prompt": "x", "answer": "y"}, "line 2: unknown key 'answer' .known: prompt, calls, system"),
        ({"prompt": "x"}, 'line 2: has no calls: write "calls": \\[\\] if'),
        ({"prompt": "x", "calls": "TurnOn"}, "line 2: calls: not JSON"),
        (
            {"messages": [USER, said(LIGHT | {"arguments": {"brightness": 500}})]},
            r"messages\[1\].tool_calls\[0\]",
        ),
        (
            {"messages": [USER, said(), {"role": "tool"}, said(LIGHT)]},
            r"messages\[3\]: calls after a tool's result",
        ),
        (
            {"messages": [USER, said(LIGHT)], "tools": [{"name": "Fly"}]},
            "tools: Fly is not in the file of --tools",
        ),
        ({"messages": [USER, said(LIGHT)], "tools": [{"name": "TurnOn"}]}, "TurnOn has other parameters"),
    ],
)
def test_wrong_row_is_refused_with_its_line(tmp_path: Path, row: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        read_examples(lines(tmp_path / "x.jsonl", SHORT, row), CATALOGUE)


@pytest.mark.parametrize("row", [SHORT, {"messages": [USER, said(LIGHT)]}])
def test_calls_without_tools_are_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match=r"line 1: has calls, but there are no tools: give their file to --tools"
    ):
        read_examples(lines(tmp_path / "x.jsonl", row))


def spoken(prompt: str, *calls: tuple[str, dict[str, Any]]) -> Example:
    checked = checked_calls([{"name": name, "arguments": given} for name, given in calls], CATALOGUE, "calls")
    return Example((Turn(prompt, encode(checked, CATALOGUE)),))


def dim(room: str) -> Example:
    return spoken(f"dim the {room} to 50", ("LightSet", {"area": room, "brightness": 50}))


def fan(room: str) -> Example:
    on, half = ("TurnOn", {"area": room, "domain": "fan"}), ("LightSet", {"area": room, "brightness": 30})
    return spoken(f"in the {room} the fan on and the light to 30", on, half)


def invite(guest: str, title: str) -> Example:
    return spoken(f"{title} with {guest}", ("AddEvent", {"title": title, "guests": [{"name": guest}]}))


def test_exchanged_texts_are_equal_in_prompt_and_calls() -> None:
    examples = [dim("hall"), dim("attic"), fan("kids room"), fan("north wing"), invite("Ann", "tea")]
    examples += [invite("Bo", "golf"), spoken("hall on", ("TurnOn", {"area": "hall"}))]
    made = augmented(examples, 20, form=call_form(CATALOGUE)).examples
    rooms, guests = ("hall", "attic", "kids room", "north wing"), ("Ann", "Bo")
    possible = {
        *map(dim, rooms),
        *map(fan, rooms),
        *(invite(guest, title) for guest in guests for title in ("tea", "golf")),
        *(spoken(f"{room} on", ("TurnOn", {"area": room})) for room in rooms),
    }
    assert set(made) <= possible - set(examples)
    assert {dim("kids room"), fan("hall"), invite("Bo", "tea")} <= set(made)


def test_choices_and_numbers_are_never_exchanged() -> None:
    examples = [
        spoken("turn on the light", ("TurnOn", {"domain": "light"})),
        spoken("turn on the fan", ("TurnOn", {"domain": "fan"})),
        spoken("set 21", ("Climate", {"degrees": 21, "room": None})),
        spoken("set 22", ("Climate", {"degrees": 22, "room": None})),
        spoken("hello"),
    ]
    made = augmented(examples, 5, form=call_form(CATALOGUE))
    assert made == Augmented((), {NO_COPY: 25})
