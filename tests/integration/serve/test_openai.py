"""OpenAI's own Python client, as a program that was written for another server would use it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from serving import Running

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


def test_chat(client: openai.OpenAI) -> None:
    said = client.chat.completions.create(model="tiny", messages=NORWAY)
    assert said.choices[0].message.content == "The capital of Norway is Oslo."
    assert said.choices[0].finish_reason == "stop"
    assert said.usage is not None
    assert said.usage.total_tokens == said.usage.prompt_tokens + said.usage.completion_tokens
    assert said.usage.model_extra is not None
    assert said.usage.model_extra["macro_steps"] < said.usage.completion_tokens
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "local"


def test_streaming(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny", messages=NORWAY, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "The capital of Norway is Oslo."
    assert chunks[-1].usage is not None
    steps = [chunk.model_extra["step"]["tokens"] for chunk in chunks if chunk.model_extra]
    assert sum(steps) == chunks[-1].usage.completion_tokens
    assert max(steps) > 1


def test_our_own_dials(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(
        model="tiny", messages=NORWAY, logprobs=True, extra_body={"confidence": 1}
    )
    assert plain.usage is not None
    assert plain.usage.model_extra is not None
    assert plain.usage.model_extra["macro_steps"] == plain.usage.completion_tokens
    assert plain.choices[0].logprobs is not None
    content = plain.choices[0].logprobs.content
    assert content is not None
    assert "".join(token.token for token in content) == plain.choices[0].message.content
    assert all(token.logprob <= 0 for token in content)


@pytest.mark.parametrize("mode", ["plain", "verify"])
def test_the_likeliest_tokens(client: openai.OpenAI, mode: str) -> None:
    asked: dict[str, Any] = {"model": "tiny", "extra_body": {"mode": mode}}
    said = client.chat.completions.create(messages=NORWAY, logprobs=True, top_logprobs=3, **asked)
    chosen = said.choices[0].logprobs
    assert chosen is not None
    for token in chosen.content or ():
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob, abs=1e-5)
        assert token.top_logprobs[0].token == token.token
        assert len(token.top_logprobs) == 3
    raw = client.completions.create(prompt="Count from 3 to", max_tokens=4, logprobs=2, **asked)
    listed = raw.choices[0].logprobs
    assert listed is not None
    assert {len(top) for top in listed.top_logprobs or ()} == {2}
    forced = (
        client.chat.completions.create(
            messages=NORWAY,
            logprobs=True,
            top_logprobs=3,
            response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": COLOURS}},
            **asked,
        )
        .choices[0]
        .logprobs
    )
    assert forced is not None
    assert {bool(token.top_logprobs) for token in forced.content or ()} == {False, True}


def test_completions(client: openai.OpenAI) -> None:
    said = client.completions.create(model="tiny", prompt="Count from 3 to", max_tokens=8)
    streamed = client.completions.create(model="tiny", prompt="Count from 3 to", max_tokens=8, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == said.choices[0].text


def test_a_json_schema(client: openai.OpenAI) -> None:
    asked: Any = {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": COLOURS}}
    said = client.chat.completions.create(model="tiny", messages=NORWAY, response_format=asked)
    assert json.loads(said.choices[0].message.content or "")["count"] in (1, 2, 3)
    loose: Any = {"type": "json_object"}
    said = client.chat.completions.create(
        model="tiny", messages=NORWAY, response_format=loose, max_tokens=200, temperature=0.5, seed=3
    )
    if said.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(said.choices[0].message.content or ""), dict)


def test_tools_and_what_they_gave(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is half of 8?"}]
    said = client.chat.completions.create(
        model="tiny", messages=messages, tools=TOOLS, tool_choice="required", max_tokens=60
    )
    assert said.choices[0].finish_reason == "tool_calls"
    message = said.choices[0].message
    assert message.content is None
    assert message.tool_calls is not None
    [call] = message.tool_calls
    assert call.type == "function"
    assert call.function.name in ("halve", "double")
    assert 0 <= json.loads(call.function.arguments)["number"] <= 99
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "4"}]
    after = client.chat.completions.create(model="tiny", messages=messages, max_tokens=20)
    assert after.choices[0].message.content


def test_a_named_tool_in_a_stream(client: openai.OpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "double"}}
    stream = client.chat.completions.create(
        model="tiny", messages=NORWAY, tools=TOOLS, tool_choice=named, stream=True, max_tokens=60
    )
    chunks = list(stream)
    [call] = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert call.function is not None
    assert call.function.name == "double"
    assert set(json.loads(call.function.arguments or "")) == {"number"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


def test_tools_that_need_not_be_called(client: openai.OpenAI) -> None:
    said = client.chat.completions.create(model="tiny", messages=NORWAY, tools=TOOLS[:1], max_tokens=40)
    message = said.choices[0].message
    assert bool(message.content) != bool(message.tool_calls)


@pytest.mark.parametrize(
    ("changes", "kind", "named"),
    [
        ({"n": 2}, openai.BadRequestError, "n"),
        ({"extra_body": {"grammar": "x"}}, openai.BadRequestError, "grammar"),
        ({"model": "other"}, openai.NotFoundError, "model"),
    ],
)
def test_errors(
    changes: dict[str, Any], kind: type[openai.APIStatusError], named: str, client: openai.OpenAI
) -> None:
    fields: dict[str, Any] = {"model": "tiny", "messages": NORWAY, **changes}
    with pytest.raises(kind) as raised:
        client.chat.completions.create(**fields)
    assert isinstance(raised.value, openai.APIError)
    assert raised.value.param == named


def test_a_schema_that_cannot_be_followed(client: openai.OpenAI) -> None:
    schema = {"type": "array", "uniqueItems": True}
    asked: Any = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        client.chat.completions.create(model="tiny", messages=NORWAY, response_format=asked)
