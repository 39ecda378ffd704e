"""Structured answers of random weights, on every runtime: valid, alike, and going on where they were cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf_bundles import gguf_bundle
from hypothesis import given, settings
from hypothesis import strategies as st
from schemas import check, schemas

from hamburger_edge import Model, load
from hamburger_edge.chat.conversation import Chat
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.loop.dial import MODES
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

pytest.importorskip("llama_cpp")

RUNTIMES = ("onnx", "torch", "llamacpp")
# Each mode with each way to feed forced tokens and each temperature, in pairs over the runtimes.
PAIRS = [("plain", "split", 1.2), ("merge", "merge", 0.0), ("hybrid", "split", 0.0), ("verify", "merge", 1.2)]
ORDER = {
    "type": "object",
    "properties": {
        "title": {"enum": ["the cat", "the cat sat", 'the "cat"\n', "thé 日本 🙂"]},
        "text": {"type": "string", "maxLength": 8},
        "count": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {
            "type": "array",
            "items": {"enum": ["on the mat", "on the mat now"]},
            "minItems": 2,
            "maxItems": 3,
        },
    },
    "required": ["title", "text", "count", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, Model]]:
    """The same weights in float32."""
    folder, checkpoint = gguf_bundle("fp32", position_rule="slot")
    torch = TorchBackend(checkpoint.model, cache_slots=512)
    template = ChatTemplate.preset("chatml")
    with (
        load(folder, "onnx", threads=1, cache_slots=512) as first,
        Model(torch, Tokenizer(checkpoint.tokenizer), template) as second,
        load(folder, "llamacpp", threads=1, cache_slots=512, kv_cache_dtype="f32") as third,
    ):
        yield dict(zip(RUNTIMES, (first, second, third), strict=True))


@pytest.fixture(scope="module", params=RUNTIMES)
def model(request: pytest.FixtureRequest, models: dict[str, Model]) -> Model:
    return models[request.param]


@settings(max_examples=36)
@given(schema=schemas, data=st.data())
def test_complete_answers_follow_their_schema(
    model: Model, schema: dict[str, Any], data: st.DataObject
) -> None:
    mode = data.draw(st.sampled_from(MODES))
    options: dict[str, Any] = {
        "confidence": 1.0 if mode == "plain" else data.draw(st.sampled_from([0.0, 0.3, 1.0])),
        "force_group": data.draw(st.sampled_from([None, 2, 3, 4])),
        "forced": data.draw(st.sampled_from(["split", "merge", "single"])),
        "temperature": data.draw(st.sampled_from([0.0, 1.5])),
        "repetition_penalty": data.draw(st.sampled_from([1.0, 1.3])),
    }
    result = model.generate("hello", json_schema=schema, mode=mode, seed=1, max_tokens=150, **options)
    assert result.complete or result.finish_reason == "length"
    if result.complete:
        check(schema, result.text)


@settings(max_examples=10)
@given(schema=schemas, confidence=st.sampled_from([0.0, 0.5, 1.0]))
def test_every_runtime_says_the_same(
    models: dict[str, Model], schema: dict[str, Any], confidence: float
) -> None:
    options: dict[str, Any] = {
        "json_schema": schema,
        "mode": "merge",
        "confidence": confidence,
        "max_tokens": 80,
    }
    said = [model.generate("hello", **options) for model in models.values()]
    assert said[0].groups == said[1].groups == said[2].groups
    assert said[0].text == said[1].text == said[2].text
    assert said[0].stats.forced_tokens == said[1].stats.forced_tokens == said[2].stats.forced_tokens


@settings(max_examples=6)
@given(schema=schemas, temperature=st.sampled_from([0.0, 1.0]))
def test_forced_tokens_change_nothing_of_plain_decoding(
    model: Model, schema: dict[str, Any], temperature: float
) -> None:
    """One call or several: the same tokens, with the same draws."""
    ways: list[dict[str, Any]] = [
        {"confidence": 1, "forced": "single"},
        {"confidence": 1, "forced": "split"},
        {"mode": "verify", "confidence": 0.0},
    ]
    said = [
        model.generate("hello", json_schema=schema, temperature=temperature, seed=2, max_tokens=60, **way)
        for way in ways
    ]
    assert said[0].tokens == said[1].tokens == said[2].tokens
    assert said[1].stats.base_calls <= said[0].stats.base_calls


@pytest.mark.parametrize(("mode", "forced", "temperature"), PAIRS)
def test_answers_that_are_cut_go_on_bit_for_bit(
    model: Model, mode: str, forced: str, temperature: float, tmp_path: Path
) -> None:
    """After every few tokens, with and without a way over the disk."""
    options: dict[str, Any] = {"confidence": 1, "temperature": temperature, "seed": 4}
    options |= {"mode": mode, "forced": forced}
    straight = model.chat(**options, max_tokens=200)
    list(straight.send("hello", json_schema=ORDER))
    check(ORDER, straight.messages[-1].text)
    for step in (1, 3, 7):
        chat = model.chat(**options, max_tokens=step)
        stream = chat.send("hello", json_schema=ORDER)
        list(stream)
        while chat.unfinished:
            assert (stream.complete, stream.finish_reason) == (False, "length")
            chat.save(tmp_path / "cut")
            if len(chat.groups) % 2:
                model.generate("something else", max_tokens=3)
                chat = model.resume(tmp_path / "cut")
            stream = chat.continue_answer()
            list(stream)
        assert stream.complete
        assert chat.messages == straight.messages
        assert tokens(chat) == tokens(straight)
        assert chat._sampling.state() == straight._sampling.state()


@pytest.mark.parametrize("forced", ["split", "merge"])
def test_a_cancelled_answer_goes_on_as_if_it_had_never_been(
    model: Model, forced: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"mode": "merge", "confidence": 0.2, "forced": forced, "max_tokens": 200}
    straight = model.chat(json_schema=ORDER, **options)
    chunks = list(straight.send("hello"))
    check(ORDER, straight.messages[-1].text)
    for stop in range(1, len(chunks), 3):
        chat = model.chat(json_schema=ORDER, **options)
        with chat.send("hello") as stream:
            for _ in range(stop):
                next(stream)
        if stop % 2:
            chat.save(tmp_path / "cancelled")
            model.generate("something else", max_tokens=3)
            chat = model.resume(tmp_path / "cancelled")
        if chat.unfinished:
            list(chat.continue_answer())
        assert chat.groups == straight.groups
        assert chat.messages == straight.messages


@pytest.mark.parametrize(("mode", "forced"), [pair[:2] for pair in PAIRS])
def test_a_stop_string_in_the_middle_of_a_structure(model: Model, mode: str, forced: str) -> None:
    """The answer is cut, says so, and the conversation goes on from exactly that text."""
    confidence = 1.0 if mode == "plain" else 0.2
    whole = model.generate(
        "hello", json_schema=ORDER, mode=mode, forced=forced, max_tokens=200, confidence=confidence
    )
    assert whole.complete
    for stop in ('"text"', '": "', "count", "tags", "}"):
        chat = model.chat(mode=mode, forced=forced, max_tokens=200, confidence=confidence, stop=[stop])
        stream = chat.send("hello", json_schema=ORDER)
        list(stream)
        assert stream.finish_reason == "stop"
        assert stream.text == whole.text[: whole.text.index(stop)]
        assert stream.complete == (stop == "}")
        list(chat.send("and more", json_schema={"const": "the mat"}))
        assert chat.messages[-1].text == '"the mat"'


def test_a_conversation_of_structured_and_free_answers(model: Model) -> None:
    chat = model.chat(max_tokens=150, confidence=0.3)
    for turn in range(2):
        stream = chat.send(f"order {turn}", json_schema=ORDER)
        list(stream)
        check(ORDER, stream.text)
        stream = chat.send("say something", max_tokens=5)
        list(stream)
        assert stream.complete is None
        stream = chat.send("a number", regex="[0-9]{3}")
        list(stream)
        assert (len(stream.text), stream.complete) == (3, True)
        stream = chat.send("a colour", grammar='start: "red" | "green" COLON "!"\nCOLON: ":"')
        list(stream)
        assert stream.text in ("red", "green:!")


def test_every_alternative_of_shared_prefixes_can_be_said(model: Model) -> None:
    words = ["the", "then", "the cat", "the cat sat", "the cat sat on the mat"]
    schema = {"enum": words}
    said = {
        json.loads(model.generate("hello", json_schema=schema, temperature=8, seed=seed).text)
        for seed in range(40)
    }
    assert said == set(words)


def tokens(chat: Chat) -> list[int]:
    return [token for group in chat.groups for token in group]
