"""OpenAI's own Python client against this server."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from helpers.serving import Running

NORWAY: list[Any] = [{"role": "user", "content": "What is the capital of Norway?"}]
COLOURS = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "count": {"enum": [1, 2, 3]}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} the number",
            "parameters": {
                "type": "object",
                "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 99}},
                "required": ["number"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("halve", "double")
]


@pytest.fixture
def client(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def ask(client: openai.OpenAI) -> Callable[..., Any]:
    """Request a chat completion, by default about Norway's capital."""
    return functools.partial(client.chat.completions.create, model="tiny", messages=NORWAY)


@pytest.fixture
def complete(client: openai.OpenAI) -> Callable[..., Any]:
    return functools.partial(client.completions.create, model="tiny", prompt="Count from 3 to")


def test_chat_completion_equals_its_stream(client: openai.OpenAI, ask: Any) -> None:
    answer = ask()
    assert answer.choices[0].message.content == "The capital of Norway is Oslo."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.model_extra["macro_steps"] < answer.usage.completion_tokens
    chunks = list(ask(stream=True))
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.choices[0].message.content
    )
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "local"


def test_completion_equals_its_stream(complete: Any) -> None:
    complete()  # the cache now holds the prompt
    completion, streamed = complete(max_tokens=8), complete(max_tokens=8, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == completion.choices[0].text


@pytest.mark.parametrize("mode", ["plain", "verify"])
def test_logprobs_hold_for_free_and_structured_answers(ask: Any, complete: Any, mode: str) -> None:
    likeliest = {"logprobs": True, "top_logprobs": 3, "extra_body": {"mode": mode}}
    answer = ask(**likeliest)
    assert (answer.usage.model_extra["macro_steps"] == answer.usage.completion_tokens) == (mode == "plain")
    tokens = answer.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == answer.choices[0].message.content
    for token in tokens:
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob, abs=1e-5)
        assert token.top_logprobs[0].token == token.token
        assert len(token.top_logprobs) == 3
    raw = complete(max_tokens=4, logprobs=2, extra_body={"mode": mode})
    assert {len(top) for top in raw.choices[0].logprobs.top_logprobs} == {2}
    schema = {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": COLOURS}}
    forced = ask(response_format=schema, **likeliest).choices[0]
    assert json.loads(forced.message.content)["count"] in (1, 2, 3)
    assert {bool(token.top_logprobs) for token in forced.logprobs.content} == {False, True}


def test_tool_result_continues_the_conversation(ask: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is half of 8?"}]
    answer = ask(messages=messages, tools=TOOLS, tool_choice="required", max_tokens=60)
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    assert message.content is None
    [call] = message.tool_calls
    assert (call.type, call.function.name in ("halve", "double")) == ("function", True)
    assert 0 <= json.loads(call.function.arguments)["number"] <= 99
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "4"}]
    assert ask(messages=messages, max_tokens=20).choices[0].message.content


def test_named_tool_is_called_in_a_stream(ask: Any) -> None:
    choice = {"type": "function", "function": {"name": "double"}}
    chunks = list(ask(tools=TOOLS, tool_choice=choice, stream=True, max_tokens=60))
    [call] = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert call.function.name == "double"
    assert set(json.loads(call.function.arguments)) == {"number"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


def test_unknown_model_and_unsupported_schema_raise_typed_errors(ask: Any) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        ask(model="other")
    assert raised.value.param == "model"
    schema = {"type": "array", "uniqueItems": True}  # a schema that cannot be followed
    response_format = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        ask(response_format=response_format)
