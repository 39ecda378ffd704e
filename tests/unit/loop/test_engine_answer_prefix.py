"""The answer prefix is read in the prompt's call, and the base checks it."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.engine_runs import PROMPT, check_the_books, run, said, sampler
from helpers.scripted_backend import EOS, ScriptedBackend, failing, info
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.fixed_groups import groups_of_size
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, SamplingSettings
from hamburger_edge.loop.step import Step
from hamburger_edge.loop.turns import Flag
from hamburger_edge.structured.edits import Edits


def plain(prompt: list[int] | None = None, most: int = 20) -> list[int]:
    return ScriptedBackend(eos_rate=0.0).plain(prompt or PROMPT, most)


def backend(answer_prefix: list[int], **changes: Any) -> ScriptedBackend:
    return ScriptedBackend(info(answer_prefix=tuple(answer_prefix), **changes), eos_rate=0.0)


@pytest.mark.parametrize("mode", ["merge", "hybrid", "verify"])
def test_it_is_read_with_the_prompt(mode: str) -> None:
    answer_prefix = plain()[:6]
    engine = Engine(backend(answer_prefix))
    steps, stats = run(engine, mode=mode, confidence=0.5, max_tokens=20, top_probabilities=0)
    check_the_books(engine, PROMPT, steps)
    assert list(steps[0].tokens) == answer_prefix
    merged = [tuple(answer_prefix[:4]), tuple(answer_prefix[4:])]
    assert list(steps[0].groups) == (merged if mode != "verify" else [(token,) for token in answer_prefix])
    assert engine.backend.macro_calls[0] == len(PROMPT) + len(steps[0].groups)
    assert stats.base_calls == len(engine.backend.macro_calls) - 1
    assert stats.first_tokens == len(answer_prefix)
    assert len(steps[0].probabilities) == len(steps[0].stop_probabilities) == len(answer_prefix)
    assert all(0 < probability <= 1 for probability in steps[0].probabilities)
    assert len(said(steps)) == stats.tokens == 20


@settings(max_examples=80)
@given(data=st.data(), prompt=st.lists(st.integers(3, 39), min_size=1, max_size=6), most=st.integers(1, 25))
def test_verified_it_changes_no_answer(data: st.DataObject, prompt: list[int], most: int) -> None:
    """However far it holds, whatever it goes on with, and with little room."""
    holds, further = data.draw(st.integers(0, 9)), data.draw(st.lists(st.integers(3, 39), max_size=3))
    sampling = data.draw(st.sampled_from([{}, {"temperature": 0.8, "seed": 4}]))
    shape = {
        "position_rule": data.draw(st.sampled_from(["token", "slot"])),
        "cache_slots": data.draw(st.integers(8, 40)),
        "context_length": data.draw(st.integers(8, 40)),
    }
    engine = Engine(
        backend([*plain(prompt)[:holds], *further], **shape), chunk=data.draw(st.sampled_from([3, 256]))
    )
    steps, stats = run(engine, prompt, sampling, mode="verify", confidence=0.5, max_tokens=most)
    check_the_books(engine, prompt, steps)
    one_by_one, _ = run(Engine(backend([], **shape)), prompt, sampling, confidence=1.0, max_tokens=most)
    assert said(steps) == said(one_by_one)
    assert steps[-1].finish_reason == one_by_one[-1].finish_reason
    assert stats.tokens == len(said(steps))


@pytest.mark.parametrize("mode", ["merge", "hybrid"])
def test_wrong_prefix_is_not_delivered(mode: str) -> None:
    other = 3 + (plain()[0] - 2) % 37  # another than the base chooses
    engine, without = Engine(backend([other, 9, 9, 9])), Engine(backend([]))
    steps, stats = run(engine, mode=mode, confidence=0.5, max_tokens=20)
    check_the_books(engine, PROMPT, steps)
    expected, _ = run(without, mode=mode, confidence=0.5, max_tokens=20)
    assert steps == expected
    assert engine.backend.context == without.backend.context
    assert stats.first_tokens == len(steps[0].tokens)


@pytest.mark.parametrize(
    "how",
    [
        {"confidence": 1.0},
        {"mode": "merge", "driver": groups_of_size(2)},
        {"sampling": {"logit_bias": {39: -100}}},
        {"mode": "verify", "sampling": {"logit_bias": {38: 0.5}}},
        {"mode": "merge", "sampling": {"repetition_penalty": 1.1}},
    ],
)
def test_not_where_something_else_may_be_due(how: dict[str, Any]) -> None:
    """One token a step, groups of a length, and whatever changes scores."""
    engine = Engine(backend(plain()[:6]))
    steps, _ = run(engine, **{"mode": "hybrid", "confidence": 0.5, "max_tokens": 20, **how})
    assert len(steps[0].tokens) < 6
    assert engine.backend.macro_calls[0] == len(PROMPT)


def corrected(answer_prefix: list[int], mode: Any) -> list[Step]:
    """The steps of an answer that edits its prompt "cde"; token 39 is a digit, which no answer may insert."""
    engine = Engine(backend(answer_prefix))
    edits = Edits(lambda token: b"7" if token == 39 else bytes([94 + token]), (EOS,))
    source = Sampler(SamplingSettings(), engine.info.vocab_size, constraint=edits)
    source.begin(PROMPT)
    decoding = Decoding(mode=mode, confidence=0.5, max_tokens=3)
    steps = list(engine.run([(token,) for token in PROMPT], decoding, source))
    check_the_books(engine, PROMPT, steps)
    assert engine.backend.macro_calls[0] >= len(PROMPT)
    return steps


@pytest.mark.parametrize("mode", ["merge", "hybrid", "verify"])
@pytest.mark.parametrize("holds", [0, 2])
def test_prefix_ends_before_the_first_token_that_edits_refuse(mode: str, holds: int) -> None:
    """A regression: the loop chose no token for a refused one and ran out of draws to take back."""
    answer = said(corrected([], "verify"))
    steps = corrected([*answer[:holds], 39, answer[holds]], mode)
    assert said(steps)[:holds] == answer[:holds]
    assert list(steps[0].tokens) == answer[:holds] or not holds
    if mode == "verify":
        assert said(steps) == answer


def test_an_answer_that_goes_on_does_not_begin_again() -> None:
    engine = Engine(backend(plain()[:4]))
    source, decoding = sampler(engine.backend), Decoding(mode="verify", confidence=0.5, max_tokens=8)
    source.begin(PROMPT)
    for _ in range(2):
        list(engine.run([(token,) for token in [*PROMPT, *source.answer]], decoding, source))
    assert source.answer == plain(most=16)


def test_a_long_prompt_is_read_in_pieces_and_may_be_cancelled() -> None:
    prompt, cancel = list(range(3, 30)), Flag()
    answer_prefix = plain(prompt)[:5]
    engine = Engine(backend(answer_prefix), chunk=8)
    steps, stats = run(engine, prompt, mode="hybrid", confidence=0.5, max_tokens=12)
    check_the_books(engine, prompt, steps)
    assert list(steps[0].tokens) == answer_prefix
    assert max(engine.backend.macro_calls) <= 8
    assert stats.base_calls < len(engine.backend.macro_calls)
    engine = Engine(backend(answer_prefix), chunk=8)
    engine.backend.before_macro = lambda it: cancel.set() if it.slots else None
    steps, _ = run(engine, prompt, mode="hybrid", confidence=0.5, cancel=cancel)
    assert (steps, engine.unread) == ([], [])
    assert engine.ledger.groups == engine.backend.context


def test_failing_call_delivers_no_token() -> None:
    engine = Engine(backend(plain()[:6]))
    source = sampler(engine.backend, temperature=0.7, seed=3)
    source.begin(PROMPT)
    before = source.state()
    with failing(engine.backend):
        list(engine.run([(t,) for t in PROMPT], Decoding(mode="hybrid", confidence=0.5), source))
    assert source.state() == before
    assert engine.ledger.groups == engine.backend.context == []
