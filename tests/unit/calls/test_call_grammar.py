"""Tokens that may follow in an answer of calls, without a model: a random one of those allowed is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.home_tools import CATALOGUE, calls
from helpers.toys.toy_tokenizers import byte_fallback
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.calls.call_grammar import CallGrammar, CallGrammars
from hamburger_edge.calls.catalogue import CallLimits
from hamburger_edge.calls.compact_form import Call, checked_calls, encode, parse
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError

EOS = 2


def of_tokenizer(tokenizer: Tokenizer) -> CallGrammars:
    pieces = tokenizer.token_bytes
    encode_text = lambda text: tokenizer.encode_parts([(text, False)])  # noqa: E731
    return CallGrammars(CATALOGUE, pieces, encode_text, tokenizer.vocab_size, [EOS])


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> CallGrammars:
    return of_tokenizer(tokenizer)


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(byte_fallback(tmp_path_factory.mktemp("tokenizer")))


def random_answer(grammar: CallGrammar, seed: int, max_tokens: int) -> list[int]:
    random, answer = np.random.default_rng(seed), list[int]()
    while not grammar.ended and len(answer) < max_tokens:
        token = grammar.forced
        if token is None:
            token = int(random.choice(np.flatnonzero(grammar.allowed())))
        assert grammar.allowed()[token]
        grammar.consume(token)
        if token == EOS:
            break
        answer.append(token)
    return answer


def text_of(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, tokens)).decode()


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), max_tokens=st.integers(1, 80))
def test_every_answer_is_complete_and_valid_at_any_token_limit(
    tokenizer: Tokenizer, grammars: CallGrammars, seed: int, max_tokens: int
) -> None:
    grammar = grammars.start(CallLimits(), max_tokens)
    answer = random_answer(grammar, seed, max_tokens)
    assert grammar.complete
    parsed = parse(text_of(tokenizer, answer), CATALOGUE)
    assert (
        checked_calls([{"name": c.name, "arguments": c.arguments} for c in parsed], CATALOGUE, "") == parsed
    )


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_answer_of_a_byte_fallback_tokenizer_is_valid(fallback: Tokenizer, seed: int) -> None:
    grammar = of_tokenizer(fallback).start(CallLimits(), 60)
    parse(text_of(fallback, random_answer(grammar, seed, 60)), CATALOGUE)


@settings(max_examples=50)
@given(given=calls)
def test_every_text_of_calls_is_allowed(
    tokenizer: Tokenizer, grammars: CallGrammars, given: list[dict[str, Any]]
) -> None:
    text = encode(checked_calls(given, CATALOGUE, "calls"), CATALOGUE)
    tokens = tokenizer.encode_parts([(text, False)])
    grammar = grammars.start(CallLimits(), 10_000)
    for token in tokens:
        assert grammar.allowed()[token]
        assert grammar.forced in (None, token)
        grammar.consume(token)
    assert grammar.complete
    grammar.rewind(len(tokens))
    assert not grammar.complete
    grammar.begin([], tokens)
    assert grammar.complete


def test_name_is_forced_once_it_is_the_only_one_left(tokenizer: Tokenizer, grammars: CallGrammars) -> None:
    grammar = grammars.start(CallLimits(), 100)
    grammar.begin([], tokenizer.encode("C"))
    forced = []
    while (token := grammar.forced) is not None:
        forced.append(token)
        grammar.consume(token)
    assert text_of(tokenizer, forced) == "limate"  # the space is free: " 1" is a token, too


def test_allowed_names_are_the_only_texts(tokenizer: Tokenizer, grammars: CallGrammars) -> None:
    limits = CallLimits.of({"names": {"area": ["Kitchen"]}, "tools": ["LightSet"], "required": True})
    answers = [text_of(tokenizer, random_answer(grammars.start(limits, 60), seed, 60)) for seed in range(20)]
    areas = {
        call.arguments.get("area") for text in answers for call in parse(text, CATALOGUE.limited(limits))
    }
    assert areas == {None, "Kitchen"}
    assert "-" not in answers


def test_one_call_is_the_limit_without_several(tokenizer: Tokenizer, grammars: CallGrammars) -> None:
    limits = CallLimits(several=False)
    answers = [random_answer(grammars.start(limits, 60), seed, 60) for seed in range(20)]
    assert {len(parse(text_of(tokenizer, answer), CATALOGUE)) for answer in answers} == {0, 1}


def test_no_tool_leaves_no_call(tokenizer: Tokenizer, grammars: CallGrammars) -> None:
    grammar = grammars.start(CallLimits(tools=()), 60)
    assert grammar.forced == tokenizer.encode("-")[0]
    assert parse(text_of(tokenizer, random_answer(grammar, 0, 60)), CATALOGUE) == list[Call]()


def test_end_token_ends_only_a_complete_answer(tokenizer: Tokenizer, grammars: CallGrammars) -> None:
    grammar = grammars.start(CallLimits(), 60)
    assert not grammar.allowed()[EOS]
    with pytest.raises(InputError, match="the catalogue allows no answer that goes on from here"):
        grammar.consume(EOS)
    grammar.begin([], tokenizer.encode("TurnOnAll"))
    assert grammar.allowed()[EOS]
    grammar.consume(EOS)
    assert grammar.ended
    assert not grammar.allowed().any()
