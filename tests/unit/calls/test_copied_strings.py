"""Copied fields of calls: their strings are spans of the prompt."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import pytest
from helpers.refusals import END, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.calls.call_grammar import CallGrammar, CallGrammars
from hamburger_edge.calls.catalogue import CallLimits, read_catalogue
from hamburger_edge.calls.compact_form import parse
from hamburger_edge.calls.parameters import strings_in

LONG = 300  # tokens of an answer, far from its limit
# the same for the JavaScript runtime
GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "copied_calls.json").read_text("utf-8"))
CATALOGUE = read_catalogue(GOLDEN["tools"])
GRAMMARS = CallGrammars(
    CATALOGUE,
    lambda token: bytes([token]) if token < END else b"",
    lambda text: list(text.encode()),
    END + 1,
    [END],
    GOLDEN["fields"],
)


def copying(prompt: str, answer: str = "", *, max_tokens: int = LONG, **limits: Any) -> CallGrammar:
    grammar = GRAMMARS.start(CallLimits.of(limits), max_tokens)
    grammar.begin([END, *prompt.encode(), END], answer.encode())
    return grammar


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["answer"])
def test_strings_of_copied_fields_are_spans_of_the_prompt(case: dict[str, str]) -> None:
    assert refused(copying(case["prompt"]), case["answer"]) == case["refused"]


def test_name_from_a_list_needs_no_place_in_the_prompt() -> None:
    named = {"room": ["Kitchen"]}
    assert copying("play Jersey Boys", "Play Jersey; room ", names=named).allows(ord("K"))
    assert not copying("play Jersey Boys", "Play Jersey; room ").allows(ord("K"))


def test_rewinding_returns_to_the_span_of_the_prompt() -> None:
    grammar = copying("play Jersey Boys", "Play Jers")
    for byte in b"ey; mood Jerry":
        assert grammar.allows(byte)
        grammar.consume(byte)
    grammar.rewind(len("ey; mood Jerry"))
    assert [byte for byte in range(END + 1) if grammar.allows(byte)] == [ord("e")]


def test_strings_are_free_behind_a_refused_token() -> None:
    """A session of an older version may hold such an answer."""
    assert copying("play Jersey Boys", "Play Jerry").allows(ord("x"))


@pytest.mark.parametrize(("max_tokens", "allowed"), [(11, "BJ"), (10, "B"), (9, "B"), (8, "")])
def test_only_words_that_fit_before_the_limit_are_begun(max_tokens: int, allowed: str) -> None:
    grammar = copying("Jersey Boys", max_tokens=max_tokens)
    for byte in b"Play ":
        grammar.consume(byte)
    assert "".join(letter for letter in ascii_uppercase if grammar.allows(ord(letter))) == allowed
    assert grammar.allows(END)


@settings(max_examples=30)
@given(prompt=st.text(st.sampled_from('ab é,;)([\\\n\t1"'), max_size=12), seed=st.integers(0, 2**32))
def test_no_answer_gets_stuck(prompt: str, seed: int) -> None:
    """Random allowed bytes lead to calls that can be parsed, and whose copied strings are in the prompt."""
    random, grammar, answer = np.random.default_rng(seed), copying(prompt, max_tokens=60), list[int]()
    while not grammar.ended:
        token = grammar.forced
        if token is None:
            token = int(random.choice([byte for byte in range(END + 1) if grammar.allows(byte)]))
        grammar.consume(token)
        answer.append(token)
    for call in parse(bytes(byte for byte in answer if byte < END).decode(), CATALOGUE):
        strings = strings_in(call.arguments, CATALOGUE.tool(call.name, "calls").parameters)
        assert all(text in prompt for path, text in strings if path in GOLDEN["fields"])
