"""Copied fields: their strings in JSON answers are spans of the prompt."""

from __future__ import annotations

import json
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refusals import END, refused
from helpers.scripted_backend import ScriptedBackend, info

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import SamplingSettings
from hamburger_edge.model import Model
from hamburger_edge.structured.copied_fields import CopiedFields, string_values

PIECES = {300: b'"}', 301: b'", "n": 1}', 302: b'rey"}', 303: b'"Jerry"}', 304: b"sey Boys"}
# the same for the JavaScript runtime
GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "copied_fields.json").read_text("utf-8"))


def token_bytes(token: int) -> bytes:
    return bytes([token]) if token < END else PIECES.get(token, b"")


def copying(prompt: str, answer: str = "") -> CopiedFields:
    constraint = CopiedFields(GOLDEN["fields"], token_bytes, [END])
    constraint.begin([END, *prompt.encode(), END], answer.encode())
    return constraint


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["answer"])
def test_copied_strings_are_spans_of_the_prompt(case: dict[str, str]) -> None:
    assert refused(copying(case["prompt"]), case["answer"]) == case["refused"]


def test_token_that_spans_the_closing_quote_is_checked_byte_by_byte() -> None:
    jersey = copying("play Jersey Boys", '{"album": "Jersey')
    assert [jersey.allows(token) for token in (300, 301, 302)] == [True, True, False]
    assert not copying("play Jersey Boys", '{"album": "Jer').allows(300)
    assert not copying("play Jersey Boys", '{"album": ').allows(303)
    assert copying("play Jersey Boys", '{"artist": ').allows(303)
    assert copying("play Jersey Boys", '{"album": "Jer').allows(304)


def test_spans_of_all_texts_of_a_conversation_are_allowed_but_none_across_them() -> None:
    constraint = CopiedFields(["album"], token_bytes, [END])
    constraint.begin([END, *b"Jersey", END, *b"Boys", END], b'{"album": "')
    for text, allowed in (("Boys", True), ("Jersey", True), ("JerseyBoys", False)):
        steps = [constraint.allows(byte) and not constraint.consume(byte) for byte in text.encode()]
        assert all(steps) == allowed
        constraint.rewind(sum(steps))


def test_answer_after_a_refused_token_is_free() -> None:
    """A session of an older version may hold such an answer."""
    constraint = copying("play Jersey Boys", '{"album": "Jerry')
    assert all(constraint.allows(byte) for byte in b'x"}')
    constraint.rewind(2)
    assert not constraint.allows(ord("r"))
    assert constraint.allows(ord("s"))


def test_value_of_a_prompt_without_text_closes() -> None:
    constraint = copying("", '{"album": "')
    assert [byte for byte in range(END + 1) if constraint.allows(byte)] == [ord('"')]


def test_sampler_takes_the_likeliest_allowed_token_within_a_copied_string() -> None:
    source = Sampler(SamplingSettings(), END + 1, constraint=copying(""), scores_answer=True)
    source.begin([*b"play Jersey Boys"])
    wished, allowed = b'{"album": "Jerry Boys"}', b'{"album": "Jersey Boys"}'
    for number, right in enumerate(allowed):
        scores = np.zeros(END + 1, dtype=np.float32)
        scores[wished[min(number, len(wished) - 1)]], scores[right] = 2, 1.5
        if right == ord("y"):
            assert not source.propose(ord("r"))
        assert source.choose(scores).token == right
    assert bytes(source.answer) == allowed
    # the refused "r" has no share of the probability of "s"
    assert source.logprobs is not None
    assert source.logprobs[len(b'{"album": "Jer')] == pytest.approx(1.5 - log(exp(1.5) + END - 1), abs=1e-5)


@pytest.mark.parametrize("mode", ["verify", "hybrid", "merge"])
def test_answer_with_copied_fields_is_the_same_in_every_mode(tokenizer: Tokenizer, mode: Any) -> None:
    """The model writes the JSON of a value that is not in the prompt, letter by letter."""
    shape = {"copied_fields": ("album",), "cache_slots": 512, "context_length": 512}

    def answer(mode: Any, **changes: Any) -> str:
        backend = ScriptedBackend(info(vocab_size=tokenizer.vocab_size, **(shape | changes)), p_stop=0.0)
        with Model(backend, tokenizer, ChatTemplate.preset("plain")) as model:
            script = tokenizer.encode('{"album": "Jerry Boys"}')
            backend.say(script, len(tokenizer.encode("play Jersey Boys")))
            return model.generate("play Jersey Boys", mode=mode, raw=True, max_tokens=30).text

    assert "Jerry" in answer("plain", copied_fields=())
    assert "Jerr" not in answer("plain")
    assert answer(mode) == answer("plain")


def test_string_values_have_the_field_and_the_spelling_of_each_string() -> None:
    answer = '{"a": "x\\"y", "b": [{"c": "é"}, "z"], "d": 1, "e": "cut'
    assert list(string_values(answer)) == [("a", b'x\\"y'), ("b[].c", "é".encode()), ("b[]", b"z")]
    assert list(string_values("no JSON")) == []
