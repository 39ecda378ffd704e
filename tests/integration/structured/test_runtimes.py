"""Structured answers of random weights are valid, equal on each runtime, and continue after a cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.schemas import check, schemas
from helpers.toys.chat_models import tokens_of
from helpers.toys.gguf_bundles import gguf_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge import Model, load
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.loop.dial import MODES
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

pytest.importorskip("llama_cpp")

RUNTIMES = ("onnx", "torch", "llamacpp")
# Each mode, with and without sampling.
PAIRS = [("plain", 1.2), ("merge", 0.0), ("hybrid", 0.0), ("verify", 1.2)]
ORDER = {
    "type": "object",
    "properties": {
        "title": {"enum": ["the cat", "the cat sat", 'the "cat"\n', "thé 日本 🙂"]},
        "text": {"type": "string", "maxLength": 8},
        "count": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["title", "text", "count"],
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


@settings(max_examples=10)
@given(schema=schemas, confidence=st.sampled_from([0.0, 0.5, 1.0]))
def test_structured_answer_is_equal_on_each_runtime(
    models: dict[str, Model], schema: dict[str, Any], confidence: float
) -> None:
    options: dict[str, Any] = {"mode": "merge", "confidence": confidence, "max_tokens": 80}
    first, *others = (model.generate("hello", json_schema=schema, **options) for model in models.values())
    for answer in others:
        assert (answer.text, answer.groups) == (first.text, first.groups)
        assert answer.stats.forced_tokens == first.stats.forced_tokens
    if first.complete:
        check(schema, first.text)


@pytest.mark.parametrize(("mode", "temperature"), PAIRS)
def test_cut_structured_answer_continues_to_same_text(
    model: Model, mode: str, temperature: float, tmp_path: Path
) -> None:
    """Cut after each 1, 3 or 7 tokens, with and without a saved session."""
    options: dict[str, Any] = {"confidence": 1, "temperature": temperature, "seed": 4, "mode": mode}
    straight = model.chat(**options, max_tokens=200)
    check(ORDER, straight.send("hello", json_schema=ORDER).result().text)
    for step in (1, 3, 7):
        chat = model.chat(**options, max_tokens=step)
        answer = chat.send("hello", json_schema=ORDER).result()
        while chat.unfinished:
            assert (answer.complete, answer.finish_reason) == (False, "length")
            chat.save(tmp_path / "cut")
            if len(chat.groups) % 2:
                model.generate("something else", max_tokens=3)
                chat = model.resume(tmp_path / "cut")
            answer = chat.continue_answer().result()
        assert answer.complete
        assert chat.messages == straight.messages
        assert tokens_of(chat.groups) == tokens_of(straight.groups)
        assert chat._sampling.state() == straight._sampling.state()


@pytest.mark.parametrize("mode", MODES)
def test_stop_string_cuts_a_structure_and_the_conversation_continues(model: Model, mode: str) -> None:
    options: dict[str, Any] = {"mode": mode, "max_tokens": 200}
    options["confidence"] = 1.0 if mode == "plain" else 0.2
    whole = model.generate("hello", json_schema=ORDER, **options).text
    for stop in ('"text"', '": "', "count", "}"):
        chat = model.chat(stop=[stop], **options)
        cut = chat.send("hello", json_schema=ORDER).result()
        assert (cut.finish_reason, cut.complete) == ("stop", stop == "}")
        assert cut.text == whole[: whole.index(stop)]
        assert chat.send("and more", json_schema={"const": "the mat"}).result().text == '"the mat"'


def test_conversation_mixes_structured_and_free_answers(model: Model) -> None:
    chat = model.chat(max_tokens=150, confidence=0.3)
    for turn in range(2):
        check(ORDER, chat.send(f"order {turn}", json_schema=ORDER).result().text)
        assert chat.send("say something", max_tokens=5).result().complete is None
        number = chat.send("a number", regex="[0-9]{3}").result()
        assert (len(number.text), number.complete) == (3, True)
        colour = chat.send("a colour", grammar='start: "red" | "green" COLON "!"\nCOLON: ":"').result()
        assert colour.text in ("red", "green:!")
