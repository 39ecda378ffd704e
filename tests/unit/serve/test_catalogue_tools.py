"""OpenAI's tool calls from a model that learned its tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from helpers.home_tools import CATALOGUE, STRING, TOOLS, function
from helpers.serving import Running, serving
from helpers.toys.chat_models import toy_model

from hamburger_edge.calls.compact_form import checked_calls
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.model import Model

LIGHT_SET = function("LightSet", ("brightness",), **TOOLS[2]["function"]["parameters"]["properties"])
MOST = 60


@pytest.fixture(scope="module")
def server(tokenizer: Tokenizer) -> Iterator[Running]:
    with serving(lambda: toy_model(tokenizer, {"tools": tuple(TOOLS)})) as running:
        yield running


@pytest.fixture
def model(tokenizer: Tokenizer) -> Iterator[Model]:
    with toy_model(tokenizer, {"tools": tuple(TOOLS)}) as model:
        yield model


def ask(server: Running, text: str = "lights", **fields: Any) -> dict[str, Any]:
    response = server.ask(text, **{"max_tokens": MOST, "tools": TOOLS, **fields})
    assert response.status_code == 200, response.text
    return dict(response.json())


def plain(choice: dict[str, Any]) -> list[dict[str, Any]]:
    calls = choice["message"].get("tool_calls") or []
    functions = [call["function"] for call in calls]
    return [{"name": each["name"], "arguments": json.loads(each["arguments"])} for each in functions]


def test_server_and_model_give_the_same_calls(server: Running, model: Model) -> None:
    found = 0
    for text in ("lights", "fan", "hello", "tell me more"):
        [choice] = ask(server, text)["choices"]
        calls = model.call(text, max_tokens=MOST)
        assert plain(choice) == [{"name": call.name, "arguments": call.arguments} for call in calls]
        assert choice["finish_reason"] in (("tool_calls",) if calls else ("stop", "length"))
        assert choice["message"]["content"] == (None if calls else "")
        found += bool(calls)
    assert found


def test_tools_add_no_tokens_to_the_prompt(server: Running, model: Model) -> None:
    tokens = ask(server)["usage"]["prompt_tokens"]
    assert tokens == ask(server, tools=None)["usage"]["prompt_tokens"]
    assert tokens == model.generate("lights", max_tokens=1).stats.prompt_tokens


def test_stream_has_the_calls_in_one_piece(server: Running) -> None:
    [whole] = ask(server, tool_choice="required")["choices"]
    response = server.ask("lights", tools=TOOLS, tool_choice="required", max_tokens=MOST, stream=True)
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in map(json.loads, data)]
    [calls] = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert [call["function"] for call in calls] == [
        call["function"] for call in whole["message"]["tool_calls"]
    ]
    assert "".join(delta.get("content") or "" for delta in deltas) == ""


def test_tool_choice_limits_the_answer(server: Running) -> None:
    [none] = ask(server, tool_choice="none")["choices"]
    assert (none["message"]["content"], none["finish_reason"]) == ("", "stop")
    assert "tool_calls" not in none["message"]
    for text in ("lights", "fan", "hello"):
        assert plain(ask(server, text, tool_choice="required")["choices"][0])
        named = {"type": "function", "function": {"name": "LightSet"}}
        calls = plain(ask(server, text, tool_choice=named, parallel_tool_calls=False)["choices"][0])
        assert [call["name"] for call in calls] == ["LightSet"]
        some = plain(ask(server, text, tools=[TOOLS[0], TOOLS[5]], tool_choice="required")["choices"][0])
        assert {call["name"] for call in some} <= {"TurnOn", "Days"}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (
            {"tools": [*TOOLS, function("Fly")]},
            "Fly is not one of this model's tools (these are: TurnOn",
        ),
        (
            {"tools": [function("TurnOn", area=STRING)]},
            "TurnOn: argument name differs from the model's",
        ),
        ({"tools": [function("TurnOn", area={"type": "integer"})]}, "TurnOn: argument area differs"),
        ({"tools": [{"type": "function"}]}, "tools[0]: a tool's name must be"),
        ({"tool_choice": {"type": "function", "function": {"name": "Fly"}}}, "there is no tool 'Fly'"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice needs tools: give some"),
        ({"tool_choice": "any"}, "tool_choice must be auto, none, required or a function"),
        ({"response_format": {"type": "json_object"}}, "an answer follows either tools or a format"),
    ],
)
def test_tool_that_the_model_lacks_is_refused_by_name(
    server: Running, fields: dict[str, Any], error: str
) -> None:
    response = server.ask("lights", **{"tools": TOOLS, **fields})
    assert response.status_code == 400
    assert error in response.json()["error"]["message"]


def test_equal_tool_in_another_order_is_the_models(server: Running) -> None:
    assert plain(ask(server, tools=[LIGHT_SET], tool_choice="required")["choices"][0])


def post(server: Running, *messages: dict[str, Any], **fields: Any) -> httpx.Response:
    with server.client() as client:
        body = {"messages": list(messages), "tools": TOOLS, "max_tokens": MOST, **fields}
        return client.post("/v1/chat/completions", json=body)


def test_result_of_a_tool_is_shown_without_another_call(server: Running) -> None:
    message = ask(server, tool_choice="required")["choices"][0]["message"]
    user = {"role": "user", "content": "lights"}
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"done {number}"}
        for number, call in enumerate(message["tool_calls"])
    ]
    [choice] = post(server, user, message, *results).json()["choices"]
    assert choice["message"]["content"].split("\n") == [f"done {number}" for number in range(len(results))]
    assert choice["finish_reason"] == "stop"
    streamed = post(server, user, message, *results, stream=True).text
    assert '"content":"done 0' in streamed


WEATHER = function("Weather", ("city",), city=STRING, day=STRING)
FORECAST = {**WEATHER, "answer": "It is {temperature} in {city}[ on {day}]."}
OSLO = {"name": "Weather", "arguments": '{"city": "Oslo"}'}
PARIS = {"name": "Weather", "arguments": '{"city": "Paris", "day": "Monday"}'}
CALLED = {
    "role": "assistant",
    "tool_calls": [
        {"id": "a", "type": "function", "function": OSLO},
        {"id": "b", "type": "function", "function": PARIS},
    ],
}
QUESTION = {"role": "user", "content": "weather"}


@pytest.fixture(scope="module")
def forecaster(tokenizer: Tokenizer) -> Iterator[Running]:
    with serving(lambda: toy_model(tokenizer, {"tools": (FORECAST,)})) as running:
        yield running


def result_of(identifier: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": content}


def test_results_fill_the_answer_templates_of_their_calls(forecaster: Running) -> None:
    results = result_of("b", '{"temperature": 21.0}'), result_of("a", "no such city")
    body = post(forecaster, QUESTION, CALLED, *results, tools=[WEATHER]).json()
    [choice] = body["choices"]
    assert choice["message"]["content"] == "It is 21 in Paris on Monday.\nno such city"
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("stop", False)
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (0, 0)
    assert "macro_steps_total{" not in forecaster.pool.metrics.text({})  # no model call


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (
            result_of("a", '{"error": "x"}'),
            "Weather: its answer template needs {temperature}, and the result",
        ),
        (result_of("c", "x"), "tool_call_id 'c' is no id of a call before it: give one"),
    ],
)
def test_result_that_fits_no_template_or_no_call_is_refused(
    forecaster: Running, result: dict[str, Any], error: str
) -> None:
    response = post(forecaster, QUESTION, CALLED, result, tools=[WEATHER])
    assert response.status_code == 400
    assert error in response.json()["error"]["message"]


def test_earlier_calls_are_checked(server: Running) -> None:
    user, wrong = {"role": "user", "content": "lights"}, {"name": "LightSet", "arguments": "{}"}
    message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": wrong}]}
    response = post(server, user, message, user)
    assert response.status_code == 400
    assert "LightSet needs the argument 'brightness'" in response.json()["error"]["message"]
    message["tool_calls"][0]["function"] = {"name": "TurnOnAll", "arguments": "{}"}  # type: ignore[index]
    calls = plain(post(server, user, message, user, tool_choice="required").json()["choices"][0])
    assert checked_calls(calls, CATALOGUE, "calls")
