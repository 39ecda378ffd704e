"""Requests are read strictly: every field is used or refused by its name."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from helpers.places import PROGRAMS, environment
from helpers.schemas import DEEP, WIDE
from helpers.serving import question

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.loop.dial import UNMEASURED, Recommended
from hamburger_edge.serve.answers import encoded, error
from hamburger_edge.serve.fields import RefusedError, decoded
from hamburger_edge.serve.requests import AnswerRequest, RequestLimits, read_chat, read_completion
from hamburger_edge.structured.grammar import Grammars


def chat(recommended: Recommended | None = None, **fields: Any) -> AnswerRequest:
    return read_chat(question(**fields), lambda _: recommended or UNMEASURED, RequestLimits())


def completion(**fields: Any) -> AnswerRequest:
    return read_completion({"prompt": "Once", **fields}, lambda _: UNMEASURED, RequestLimits())


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def test_request_uses_the_recommended_setting_by_default() -> None:
    def dial(*advice: Recommended, **fields: Any) -> tuple[str, float]:
        decoding = chat(*advice, **fields).settings.decoding
        return decoding.mode, decoding.confidence

    asked, advice = chat(max_tokens=None), Recommended("verify", 0.9)
    assert (asked.settings.decoding.max_tokens, asked.settings.sampling.temperature) == (None, 0)
    assert not asked.stream
    assert (dial(), dial(advice)) == (("verify", 0.8), ("verify", 0.9))
    assert dial(advice, confidence=0.5) == ("verify", 0.5)
    assert dial(advice, mode="merge") == ("merge", 0.8)


def test_every_option_reaches_the_settings() -> None:
    given: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "confidence": 0.7}
    given |= {"presence_penalty": 0.1, "frequency_penalty": 0.2, "repetition_penalty": 1.1}
    given |= {"mode": "verify", "max_tokens": 5, "stop": ["a", "b"]}
    options = chat(**given, logit_bias={"3": -1, "4": 2.5}).settings.to_options()
    assert {name: options[name] for name in given} == given
    assert options["logit_bias"] == {3: -1, 4: 2.5}
    for seed in (-1, -(2**63), 2**63 - 1):  # of 64 bits and a sign
        assert chat(seed=seed).settings.sampling.seed == seed % 2**64
    for fields in ({"mode": "verify"}, {"confidence": 1}):
        assert chat(logprobs=True, **fields).logprobs
    assert completion(logprobs=0).logprobs


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n": 2}, "n"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "mode": "merge"}, "logprobs"),
        ({"logprobs": True, "mode": "hybrid", "confidence": 0.9}, "logprobs"),
        ({"audio": {}}, "audio"),
        ({"metadata": {"a": 3}}, "metadata.a"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"prediction": {"type": "image"}}, "prediction.type"),
        ({"store": True}, "store"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"other": 1}}, "stream_options.other"),
        ({"stop": [""]}, "stop"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"mode": "fast"}, "mode"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"1": "b"}}, "logit_bias.1"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [user("Hi"), {"role": "assistant", "content": "Ho"}]}, "messages"),
        ({"messages": [user("Hi"), {"role": "system", "content": "Ho"}]}, "messages[1].role"),
        ({"messages": [user("Hi") | {"weight": 1}]}, "messages[0].weight"),
        ({"messages": [user([{"type": "image_url", "image_url": {}}])]}, "messages[0].content[0].type"),
        ({"messages": [user("")]}, "messages"),
        ({"messages": [user("Hi")] * 513}, "messages"),
        ({"messages": [user("\ud800")]}, "messages[0].content"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "code", "function": {}}]}, "tools[0].type"),
        ({"tools": [tool("a b")]}, "tools[0].function.name"),
    ],
)
def test_unsupported_field_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RefusedError) as refused:
        chat(**fields)
    assert (refused.value.field, refused.value.status) == (named, 400)
    assert named.split(".")[0].split("[")[0] in refused.value.message or "schema" in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("name", ["echo", "suffix", "best_of", "messages", "tools"])
def test_completions_refuse_unsupported_fields(name: str) -> None:
    with pytest.raises(RefusedError) as refused:
        completion(**{name: {"echo": True, "suffix": "x"}.get(name, 3)})
    assert refused.value.field == name


@pytest.mark.parametrize("prompt", [None, 3, "", [], ["a", "b"], [1, "a"], [-1], [True], [[1], [2]]])
def test_completions_accept_one_text_or_its_tokens(prompt: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        completion(prompt=prompt)
    assert refused.value.field == "prompt"
    assert completion(prompt=["a"]).prompt == "a"
    assert completion(prompt=[1, 2]).prompt == completion(prompt=[[1, 2]]).prompt == (1, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"trace": "7", "é": ""}},
        {"reasoning_effort": "medium"},
        {"prompt_cache_key": "k", "safety_identifier": "s", "service_tier": "flex"},
        {"prediction": {"type": "content", "content": "Once"}},
        {"parallel_tool_calls": True},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tool_choice": "none"},
        {"stop": []},
        dict.fromkeys(["temperature", "stop", "tools", "response_format", "logit_bias", "user", "n"]),  # null
    ],
)
def test_fields_without_effect_are_accepted(fields: dict[str, Any]) -> None:
    """A regression: fields that ordinary clients always send were refused."""
    assert chat(**fields) == chat()
    if not {"tools", "tool_choice", "parallel_tool_calls"} & set(fields):
        assert completion(**fields) == completion()


def test_error_shows_field_names_safely() -> None:
    """Half a character in a name could not be sent back, and was a fault of the server."""
    for name in ("\ud800", "a\nb", "x" * 10_000):
        for fields in ({name: 1}, {"messages": [user("Hi") | {name: 1}]}, {"metadata": {name: 1}}):
            with pytest.raises(RefusedError) as refused:
                chat(**fields)
            message = json.loads(encoded(error(refused.value)))["error"]
            assert message["message"].isprintable()
            assert len(message["message"]) <= 500
            assert len(message["param"]) <= 200


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": {"\udc00": {"const": 1}}}, "UTF-8"),  # half a character
        (WIDE, "1001 properties"),
        (DEEP, "64 levels"),
    ],
    ids=["half", "wide", "deep"],
)
def test_limits_of_schemas_apply_to_functions(schema: Any, message: str) -> None:
    """With `auto` the answer follows a grammar, whose schemas were not checked (a regression)."""
    asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    for fields, named in (
        ({"response_format": asked}, "response_format"),
        ({"tools": [tool("good"), tool("bad", parameters=schema)]}, "tools[1].function.parameters"),
    ):
        with pytest.raises(RefusedError, match=message) as refused:
            chat(**fields)
        assert refused.value.field == named


def test_messages_become_turns() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "In "}, {"type": "text", "text": "rhymes."}]},
        user("One"),
        user("Two"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
        user("And now?"),
    ]
    said = '{"name": "add", "arguments": {"a": 1}}'
    system = {"role": "system", "content": "Be brief.\n\nIn rhymes."}
    answer = {"role": "assistant", "content": said}
    turns = user("One\n\nTwo"), answer, user("The result is 2\n\nAnd now?")
    assert chat(messages=messages).messages == (system, *turns)
    assert chat().messages == (user("Tell"),)


def test_formats_and_tools_become_a_structure() -> None:
    asked = chat(response_format={"type": "json_object"}).settings.structure
    assert (asked.kind, json.loads(asked.text)["type"]) == ("json_schema", "object")
    number = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tools = [tool(name, description="d", parameters=number) for name in ("add", "halve")]
    required = chat(tools=tools, tool_choice="required")
    assert required.settings.structure.kind == "json_schema"
    assert len(json.loads(required.settings.structure.text)["anyOf"]) == 2
    chosen = chat(tools=tools, tool_choice=tool("add"))
    assert [each.name for each in chosen.tools.functions] == ["add"]
    auto = chat(tools=tools)
    assert auto.settings.structure.kind == "grammar"
    none = chat(tools=tools, tool_choice="none")
    assert none.tools is None is none.settings.structure
    with pytest.raises(RefusedError):
        chat(tools=tools, response_format={"type": "json_object"})


@pytest.mark.parametrize(("names", "several"), [(["a"], False), (["a", "b"], True)])
def test_parameters_may_have_references(names: list[str], several: bool, tokenizer: Tokenizer) -> None:
    """Those of nested Pydantic models do: inside the schema of calls the parts were not found."""
    part = {"$ref": "#/$defs/part"}
    parameters = {"type": "object", "properties": {"p": part}, "$defs": {"part": {"const": "x"}}}
    tools = [tool(name, parameters=parameters) for name in names]
    grammars = Grammars(tokenizer.to_json, tokenizer.vocab_size, [2])
    for choice in ("required", "auto"):
        asked = chat(tools=tools, tool_choice=choice, parallel_tool_calls=several)
        grammar = grammars.start(asked.settings.structure)
        call = '{"name": "a", "arguments": {"p": "x"}}'
        for token in tokenizer.encode(f"[{call}]" if several else call):
            assert grammar.allowed()[token]
            grammar.consume(token)


def test_calls_are_read_from_the_answer() -> None:
    one, several = (chat(tools=[tool("add")], parallel_tool_calls=each).tools for each in (None, True))
    said = '{"name": "add", "arguments": {"a": "é"}}'
    assert [(c.name, c.arguments) for c in one.calls(said) or ()] == [("add", '{"a": "é"}')]
    assert one.calls("So: " + said) is None
    assert one.calls(said[:-1]) is None
    assert len(several.calls(f"[{said}, {said}]") or ()) == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": 1e}', b"\xff{}", b'{"a":' * 100_000],
)
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        decoded(body)
    assert refused.value.status == 400
    assert "\n" not in refused.value.message


def test_reading_time_of_a_body_is_linear() -> None:
    """A regression: the search for a repeated name took quadratic time, minutes without any answer."""
    program = [sys.executable, PROGRAMS / "body_bombs.py"]
    done = subprocess.run(program, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "the body is not valid JSON (key '130000' stands there twice): correct it",
        "taken",
    ]
