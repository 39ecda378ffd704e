"""Answers to results of tools, from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.home_tools import STRING, function
from pydantic import BaseModel

from hamburger_edge import answer_template
from hamburger_edge.calls.catalogue import Tool, read_catalogue
from hamburger_edge.calls.from_python import read_tools_file, tools_of
from hamburger_edge.errors import InputError

WEATHER = function("Weather", ("city",), city=STRING, day=STRING)


def tool(answer: Any) -> Tool:
    return read_catalogue([{**WEATHER, "answer": answer}]).tools[0]


@pytest.mark.parametrize(
    ("answer", "arguments", "result", "text"),
    [
        ("It is {temperature} in {city}.", {"city": "Oslo"}, {"temperature": 21.0}, "It is 21 in Oslo."),
        ("It is {temperature} in {city}.", {"city": "Oslo"}, '{"temperature": 0.5}', "It is 0.5 in Oslo."),
        ("{city}: {result}", {"city": "Oslo"}, "rain", "Oslo: rain"),
        ("{city}", {"city": "oslo"}, {"city": "Oslo, Norway"}, "Oslo, Norway"),
        ("Ask for {city}[ on {day}].", {"city": "Rome", "day": "Friday"}, None, "Ask for Rome on Friday."),
        ("AnswerRequest for {city}[ on {day}].", {"city": "Oslo"}, None, "AnswerRequest for Oslo."),
        ("{{{city}}} [[{rain}]]", {"city": "Oslo"}, {"rain": True}, "{Oslo} [true]"),
        ("{days}; {low}", {}, {"days": ["Mon", "Tue"], "low": {"at": 2}}, 'Mon, Tue; {"at":2}'),
        ("{a} {b} {c} {d}", {}, {"a": 1e-5, "b": 1e-7, "c": 1e20, "d": 1.5e21},
         "0.00001 1e-7 100000000000000000000 1.5e+21"),
        ("It is {temperature}.", {"city": "X"}, "there is no such city", "there is no such city"),
    ],
)  # fmt: skip
def test_template_is_filled_with_the_result_and_the_arguments(
    answer: str, arguments: dict[str, Any], result: Any, text: str
) -> None:
    assert tool(answer).result_text(arguments, result) == text


def test_result_without_a_template_is_its_own_text() -> None:
    [plain] = read_catalogue([WEATHER]).tools
    results = ["rain", None, {"low": 3}, [1, 2], 21.0]
    assert [plain.result_text({}, result) for result in results] == ["rain", "", '{"low":3}', "1, 2", "21"]


@pytest.mark.parametrize("result", [{"warmth": 21}, None])
def test_missing_field_is_an_error_with_its_name(result: Any) -> None:
    with pytest.raises(InputError, match=r"Weather: its answer template needs \{temperature\}, and"):
        tool("It is {temperature}.").result_text({"city": "Oslo"}, result)
    with pytest.raises(InputError, match="a tool's result must be JSON, got"):
        tool("It is {temperature}.").result_text({}, {"temperature": {1j}})


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (3, "answer must be a text, got 3"),
        (" ", "answer must be a text, got ' '"),
        ("{city", "has '{' out of place: write names as {name}"),
        ("{}", "has '{}' out of place"),
        ("city]", "has ']' out of place"),
        ("[in [{city}]]", "has '\\[' out of place"),
        ("[in {city}", "has a \\[ without a \\]"),
        ("On {day}.", "a call may leave out 'day': write its part in brackets, as \\[ in {day}\\]"),
    ],
)
def test_malformed_template_is_refused_when_the_tools_are_read(answer: Any, error: str) -> None:
    with pytest.raises(InputError, match=f"tools\\[0\\] Weather: .*{error}"):
        tool(answer)


def test_every_form_of_a_tool_carries_its_template() -> None:
    outer, inner = {**WEATHER, "answer": "{city}"}, {**WEATHER["function"], "answer": "{city}"}
    titled = {"title": "Weather", **WEATHER["function"]["parameters"], "answer": "{city}"}
    for form in (outer, {"type": "function", "function": inner}, inner, titled):
        [read] = read_catalogue([form]).tools
        assert read.to_json()["answer"] == "{city}"
        assert "answer" not in read.to_json()["function"]["parameters"]


@answer_template("The timer rings in {minutes} minutes.")
def set_timer(minutes: int) -> None:
    pass


@answer_template("Dimmed.")
class Dim(BaseModel):
    level: int


class Brighten(Dim):
    pass


def test_functions_and_models_have_templates_of_their_own(tmp_path: Path) -> None:
    tools = tools_of([set_timer, Dim, Brighten]).tools
    texts = [None if tool.answer is None else tool.answer.text for tool in tools]
    assert texts == ["The timer rings in {minutes} minutes.", "Dimmed.", None]
    path = tmp_path / "tools.py"
    path.write_text(
        "from hamburger_edge import answer_template\n"
        "@answer_template('Playing {song}.')\ndef play(song: str) -> None:\n    pass\n"
    )
    assert [tool.result_text({"song": "X"}, None) for tool in read_tools_file(path).tools] == ["Playing X."]
