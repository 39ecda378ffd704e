from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.places import PATIENCE
from helpers.scripted_backend import EOS, failing
from helpers.toys.chat_models import tokens_of, toy_model

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import BusyError, ClosedError, InputError
from hamburger_edge.model import Model

SMALL = {"cache_slots": 512, "context_length": 512}


@pytest.fixture
def model(tokenizer: Tokenizer) -> Iterator[Model]:
    with toy_model(tokenizer, SMALL, eos_rate=0.02, agreement=1.0) as model:
        yield model


def speller(tokenizer: Tokenizer, text: str) -> Model:
    """Answers any prompt of two tokens with this text, letter by letter, in full groups."""
    model = toy_model(tokenizer, SMALL, template="plain", p_stop=0.0)
    model.backend.say([token for letter in text for token in tokenizer.encode(letter)], prompt=2)
    return model


def test_top_log_probabilities_are_those_of_the_answer(model: Model) -> None:
    said = model.generate("hi", max_tokens=9, mode="plain", top_probabilities=2)
    assert [top[0].token for top in said.top_probabilities] == said.tokens
    likeliest = [math.exp(top[0].logprob) for top in said.top_probabilities]
    assert likeliest == pytest.approx(said.probabilities, abs=1e-5)


def test_generate_equals_the_joined_stream(model: Model) -> None:
    chunks = list(model.stream("hello", max_tokens=30))
    result = model.generate("hello", max_tokens=30)
    assert result.groups == [list(chunk.tokens) for chunk in chunks]
    assert result.tokens == [token for group in result.groups for token in group]
    assert result.text == "".join(chunk.text for chunk in chunks) == model.decode(result.tokens)
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + [result.finish_reason]
    assert not any(chunk.probabilities for chunk in chunks)  # not asked for
    stats = result.stats
    assert (stats.tokens, stats.macro_steps) == (len(result.tokens), len(result.groups))
    assert stats.slots == model.backend.slots == model.inference.engine.ledger.slots
    assert stats.kv_bytes == 100 * stats.slots < stats.kv_bytes_uncompressed
    assert stats.ttft_s > 0
    assert stats.host_s > 0
    assert model.generate("hello", max_tokens=3).stats.reused_tokens > 0
    assert model.generate("hello", max_tokens=3, reuse_prefix=False).stats.reused_tokens == 0
    begun = model.stream("hello", max_tokens=30)
    next(begun)
    assert (begun.result().groups, begun.result()) == (result.groups, begun.result())


def test_each_form_of_prompt_is_accepted(model: Model) -> None:
    def said(prompt: Any, **options: Any) -> list[int]:
        return model.generate(prompt, max_tokens=5, **options).tokens

    wrapped = model.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    for prompt in ("hello", b"hello", wrapped, tuple(wrapped), np.array(wrapped)):
        assert said(prompt) == model.backend.plain(wrapped, 5)
    with_system = model.encode("<|im_start|>system\nbe kind<|im_end|>\n") + wrapped
    assert said("hello", system="be kind") == model.backend.plain(with_system, 5)
    raw = model.encode("hello<|im_end|>")
    assert raw[-1] == EOS
    assert said("hello<|im_end|>", raw=True) == model.backend.plain(raw, 5)
    model.backend.eos_rate = 0.0
    assert len(model.generate("hello").tokens) == 256


@pytest.mark.parametrize(
    ("prompt", "options", "named"),
    [
        ("", {}, "empty"),
        ([], {}, "empty"),
        (b"\xff\xfe", {}, "UTF-8"),
        (["a"], {}, "token"),
        (None, {}, "prompt or messages"),
        ("x", {"raw": True, "system": "S"}, "leave system out"),
        ([5], {"system": "S"}, "leave system out"),
        ("x", {"stop": [""]}, "stop"),
        ("x", {"warmth": 1}, "unknown option 'warmth'"),
        ([5] * 600, {}, "600 positions"),
    ],
)
def test_bad_input_is_refused_immediately_and_frees_the_model(
    model: Model, prompt: Any, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        model.stream(prompt, **options)  # not iterated: the call itself refuses
    assert model.generate("fine", max_tokens=1).tokens


# Text


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("abSTOPcdefgh", "STOP", "ab"),  # straddles two groups
        ("aSxyz", ["S"], "a"),  # inside a group: the rest of it is dropped
        ("日本語🙂です", ["🙂"], "日本語"),
    ],
)
@pytest.mark.parametrize("mode", ["merge", "verify"])
def test_stop_strings_end_the_answer(
    tokenizer: Tokenizer, text: str, stop: Any, expected: str, mode: str
) -> None:
    model = speller(tokenizer, text)
    result = model.generate([5, 6], stop=stop, mode=mode)
    assert (result.text, result.finish_reason) == (expected, "stop")
    # the tokens end with the one that completed the stop string
    assert model.decode(result.tokens) == expected + "".join(stop)
    assert result.stats.tokens == len(result.tokens)
    # and nothing that was dropped stays in the cache
    assert tokens_of(model.inference.engine.sequence) == [5, 6, *result.tokens]
    assert model.inference.engine.ledger.groups == model.backend.context


def test_held_back_text_is_delivered_later(tokenizer: Tokenizer) -> None:
    chunks = list(speller(tokenizer, "abSTabcd").stream([5, 6], stop=["STOP"]))
    assert [chunk.text for chunk in chunks] == ["ab", "STabcd", ""]
    chunks = list(speller(tokenizer, "abST").stream([5, 6], stop=["STOP"]))
    assert [chunk.text for chunk in chunks] == ["ab", "ST"]  # held back until the end token
    cut = speller(tokenizer, "🙃🙃").generate([5, 6], max_tokens=2)
    assert (cut.text, cut.finish_reason) == ("\ufffd", "length")


# One at a time


def test_second_use_is_refused_until_the_first_ends(model: Model) -> None:
    stream = model.stream("hello", max_tokens=20)
    next(stream)
    for use in (model.stream, model.generate, model.chat().send, model.chat().save, model.resume):
        with pytest.raises(BusyError):
            use("x")
    rest = tokens_of([chunk.tokens for chunk in stream])
    assert rest == model.generate("hello", max_tokens=20).tokens[-len(rest) :]


def test_model_is_free_after_close_break_error_and_collection(model: Model) -> None:
    with model.stream("a") as stream:
        next(stream)
    assert (stream.finish_reason, list(stream)) == ("cancelled", [])
    stream = model.stream("hello")
    calls = len(model.backend.macro_calls)
    model.cancel()
    assert [chunk.finish_reason for chunk in stream] == ["cancelled"]
    assert len(model.backend.macro_calls) == calls  # before the first step
    model.stream("b")  # never iterated, dropped immediately
    for chunk in model.stream("c", max_tokens=3):
        if chunk.finish_reason:
            model.generate("d", max_tokens=1)  # free as soon as the last chunk is out
    stream = model.stream("e")
    next(stream)
    del stream
    gc.collect()
    with failing(model.backend):
        model.generate("f")
    assert model.generate("g", max_tokens=1).tokens


def test_another_thread_cancels_an_answer(model: Model) -> None:
    model.backend.eos_rate = 0.0
    chunks = []
    for chunk in model.stream("hello", max_tokens=200):
        chunks.append(chunk)
        if len(chunks) == 3:
            thread = threading.Thread(target=model.cancel)
            thread.start()
            thread.join(PATIENCE)
    assert [chunk.finish_reason for chunk in chunks] == [None, None, None, "cancelled"]
    assert chunks[-1].tokens == ()
    model.cancel()  # nothing to cancel: harmless
    assert model.generate("hello", max_tokens=7).finish_reason == "length"


def test_one_thread_reads_an_answer_and_close_waits_for_its_step(model: Model) -> None:
    stream = model.stream("hello")
    inside, go, chunks = threading.Event(), threading.Event(), []
    model.backend.before_macro = lambda it: (inside.set(), go.wait(PATIENCE))
    reader = threading.Thread(target=lambda: chunks.extend([*stream, "ended"]))
    reader.start()
    assert inside.wait(PATIENCE)
    with pytest.raises(BusyError):
        next(stream)
    closer = threading.Thread(target=model.close)
    closer.start()
    assert not model.backend.closed
    go.set()
    closer.join(PATIENCE)
    reader.join(PATIENCE)
    assert model.backend.closed
    assert chunks[-1] == "ended"  # the reader sees an end, not an error
    model.close()
    with pytest.raises(ClosedError, match="closed"):
        model.stream("again")
