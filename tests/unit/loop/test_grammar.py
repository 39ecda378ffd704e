"""What may come next in a structured answer; what cannot be one, and how it says so."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from grammar_walks import EOS, start, text_of, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from schemas import check, schemas
from toy_tokenizers import byte_fallback

from hamburger_edge.chat.tokenizer import TextStream, Tokenizer
from hamburger_edge.loop.grammar import Grammars


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(byte_fallback(tmp_path_factory.mktemp("tokenizer")))


@pytest.mark.parametrize("kind", ["tokenizer", "fallback"])
@settings(max_examples=60)
@given(schema=schemas, seed=st.integers(0, 2**32))
def test_whatever_is_allowed_leads_to_an_answer_that_follows_its_schema(
    request: pytest.FixtureRequest, kind: str, schema: dict[str, Any], seed: int
) -> None:
    """Also for a tokenizer that puts a space before every text."""
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    grammar = start(Grammars(tokenizer.to_json, tokenizer.vocab_size, [EOS]), json_schema=schema)
    random = np.random.default_rng(seed)
    said = walk(grammar, lambda allowed: int(random.choice(allowed)))
    if grammar.complete:
        output = TextStream(tokenizer, whole=True)
        check(schema, output.push(said)[0] + output.flush())


@settings(max_examples=60)
@given(schema=schemas, data=st.data())
def test_a_place_depends_on_what_was_said_alone(
    grammars: Grammars, schema: dict[str, Any], data: st.DataObject
) -> None:
    """However it was reached: straight, rewound, or started again in the middle of a forced run."""
    random = np.random.default_rng(1)
    grammar = start(grammars, json_schema=schema)
    forced: list[int | None] = []

    def consume(token: int) -> None:
        forced.append(grammar.forced)
        grammar.consume(token)

    said = walk(start(grammars, json_schema=schema), lambda allowed: int(random.choice(allowed)), most=60)
    for token in said:
        consume(token)
    end = (grammar.complete, grammar.ended, grammar.forced)
    back = data.draw(st.integers(0, len(said)))
    grammar.rewind(back)
    cut = len(said) - back
    other = start(grammars, json_schema=schema)
    other.restart(said[:cut])
    for place in (grammar, other):
        for token, expected in zip(said[cut:], forced[cut:], strict=True):
            assert place.forced == expected
            assert place.allowed()[token]
            place.consume(token)
        assert (place.complete, place.ended, place.forced) == end


def test_json_is_laid_out_as_models_write_it(grammars: Grammars, tokenizer: Tokenizer) -> None:
    value = {"a": [1, {"b": "é 日本 🙂"}], 'c"\\\n\t': "\u0001 / ~"}
    said = walk(start(grammars, json_schema={"const": value}), lambda allowed: allowed[0])
    assert text_of(tokenizer, said) == json.dumps(value, ensure_ascii=False)
    assert said == tokenizer.encode(json.dumps(value, ensure_ascii=False))


def test_a_schema_may_ask_for_another_layout(grammars: Grammars, tokenizer: Tokenizer) -> None:
    schema = {"const": {"a": [1, 2]}, "x-guidance": {"item_separator": ",", "key_separator": ":"}}
    said = walk(start(grammars, json_schema=schema), lambda allowed: allowed[0])
    assert text_of(tokenizer, said) == '{"a":[1,2]}'


def test_a_run_that_is_forced_is_as_the_tokenizer_cuts_it(grammars: Grammars, tokenizer: Tokenizer) -> None:
    text = "the cat sat on the mat\n\tif x == 1: 日本🙂"
    said = walk(start(grammars, grammar=f"start: {json.dumps(text)}"), lambda allowed: allowed[0])
    assert said == tokenizer.encode(text)


def test_an_end_token_ends_what_may_end(grammars: Grammars, tokenizer: Tokenizer) -> None:
    grammar = start(grammars, regex="[0-9]{1,3}")
    [digit] = tokenizer.encode("7")
    assert (grammar.complete, bool(grammar.allowed()[EOS])) == (False, False)
    grammar.consume(digit)
    assert (grammar.complete, grammar.ended, bool(grammar.allowed()[EOS])) == (True, False, True)
    grammar.consume(EOS)
    assert grammar.ended
    grammar.rewind(1)
    assert not grammar.ended
    grammar.consume(digit)
    grammar.consume(digit)
    assert grammar.ended


def test_micro_steps_see_the_draft_vocab(grammars: Grammars, tokenizer: Tokenizer) -> None:
    one, x, two = (tokenizer.encode(letter)[0] for letter in "1x2")
    grammar = start(grammars, np.array([two, x, one]), regex="[12]x?")
    assert grammar.allowed_micro().tolist() == [True, False, True]


def test_the_same_structure_is_compiled_once(grammars: Grammars) -> None:
    first = start(grammars, regex="[ab]c")
    compiled = grammars._newest
    first.consume(int(np.flatnonzero(first.allowed())[0]))
    second = start(grammars, regex="[ab]c")
    assert grammars._newest is compiled
    assert second.forced is None  # it begins at the beginning
