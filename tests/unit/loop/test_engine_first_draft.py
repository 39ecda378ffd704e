"""The call that reads the prompt checks a draft of guesses, too."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.engine_runs import PROMPT, along, check_the_books, packed_index, run, said, sampler
from helpers.scripted_backend import EOS, ScriptedBackend, failing, info
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.drafts.draft_index import DraftIndex
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.loop.modes.fixed_groups import groups_of_size
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, SamplingSettings
from hamburger_edge.loop.step import Step
from hamburger_edge.loop.turns import Flag
from hamburger_edge.structured.edits import Edits

NO_DOUBT = 0.01  # confidence at which no merged slot is read again


def plain(prompt: list[int] | None = None, tokens: int = 20) -> list[int]:
    return ScriptedBackend(eos_rate=0.0).plain(prompt or PROMPT, tokens)


def beginning(tokens: list[int], floor: float = 1.0) -> DraftIndex | None:
    """Return an index that is certain of how answers begin."""
    return DraftIndex(packed_index(*along(tokens, floor, first=0)), 40) if tokens else None


def backend(guesses: list[int], floor: float = 1.0, **changes: Any) -> ScriptedBackend:
    return ScriptedBackend(info(draft_index=beginning(guesses, floor), **changes), eos_rate=0.0)


@pytest.mark.parametrize("mode", ["hybrid", "verify"])
def test_guesses_are_checked_in_the_call_that_reads_the_prompt(mode: str) -> None:
    guesses = plain()[:6]
    engine = Engine(backend(guesses))
    steps, stats = run(engine, mode=mode, confidence=NO_DOUBT, max_tokens=20, top_probabilities=0)
    check_the_books(engine, PROMPT, steps)
    assert list(steps[0].tokens) == guesses
    merged = [tuple(guesses[:4]), tuple(guesses[4:])]
    assert list(steps[0].groups) == (merged if mode == "hybrid" else [(token,) for token in guesses])
    assert engine.backend.macro_calls[0] == len(PROMPT) + len(steps[0].groups)
    assert stats.base_calls == len(engine.backend.macro_calls) - 1
    assert stats.first_tokens == len(guesses)
    assert len(steps[0].probabilities) == len(steps[0].stop_probabilities) == len(guesses)
    assert all(0 < probability <= 1 for probability in steps[0].probabilities)
    assert len(said(steps)) == stats.tokens == 20


@settings(max_examples=80)
@given(data=st.data(), prompt=st.lists(st.integers(3, 39), min_size=1, max_size=6), limit=st.integers(1, 25))
def test_verify_equals_plain_decoding_whatever_the_first_guesses_are(
    data: st.DataObject, prompt: list[int], limit: int
) -> None:
    """With right and wrong guesses, and with little room."""
    right, further = data.draw(st.integers(0, 9)), data.draw(st.lists(st.integers(3, 39), max_size=3))
    sampling = data.draw(st.sampled_from([{}, {"temperature": 0.8, "seed": 4}, {"repetition_penalty": 1.3}]))
    shape = {
        "position_rule": data.draw(st.sampled_from(["token", "slot"])),
        "cache_slots": data.draw(st.integers(8, 40)),
        "context_length": data.draw(st.integers(8, 40)),
    }
    engine = Engine(
        backend([*plain(prompt)[:right], *further], **shape), chunk=data.draw(st.sampled_from([3, 256]))
    )
    steps, stats = run(engine, prompt, sampling, mode="verify", confidence=0.5, max_tokens=limit)
    check_the_books(engine, prompt, steps)
    one_by_one, _ = run(Engine(backend([], **shape)), prompt, sampling, confidence=1.0, max_tokens=limit)
    assert said(steps) == said(one_by_one)
    assert steps[-1].finish_reason == one_by_one[-1].finish_reason
    assert stats.tokens == len(said(steps))


def test_first_draft_ends_where_the_base_doubts_a_merged_slot() -> None:
    guesses = plain()[:6]
    engine = Engine(backend(guesses))
    steps, stats = run(engine, mode="hybrid", confidence=0.5, max_tokens=20)
    check_the_books(engine, PROMPT, steps)
    assert steps[0].groups == (tuple(guesses[:4]),)
    assert stats.reread_tokens >= 4


def test_wrong_first_guess_is_not_delivered() -> None:
    wrong = 3 + (plain()[0] - 2) % 37  # another token than the base chooses
    engine, without = Engine(backend([wrong, 9, 8, 10])), Engine(backend([]))
    steps, stats = run(engine, mode="verify", confidence=0.5, max_tokens=20)
    check_the_books(engine, PROMPT, steps)
    expected, _ = run(without, mode="verify", confidence=0.5, max_tokens=20)
    assert said(steps) == said(expected)
    assert engine.backend.macro_calls[0] == len(PROMPT) + 4
    assert stats.first_tokens == len(steps[0].tokens)


def test_unlikely_first_guess_is_left_out() -> None:
    """A row must pay for itself in the prompt's call as in any other."""
    index = DraftIndex(packed_index(([0], plain()[0], 0.1, 0.0)), 40)
    engine = Engine(ScriptedBackend(info(draft_index=index), eos_rate=0.0))
    run(engine, mode="verify", confidence=0.5, max_tokens=20)
    assert engine.backend.macro_calls[0] == len(PROMPT)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "verify", "confidence": 1.0},
        {"mode": "merge"},
        {"mode": "merge", "driver": groups_of_size(2)},
        {"mode": "plain"},
    ],
)
def test_no_guess_is_drafted_where_the_mode_has_no_drafts(options: dict[str, Any]) -> None:
    engine = Engine(backend(plain()[:6]))
    run(engine, **{"confidence": 0.5, "max_tokens": 20, **options})
    assert engine.backend.macro_calls[0] == len(PROMPT)


@pytest.mark.parametrize(
    "sampling", [{"logit_bias": {39: -100}}, {"logit_bias": {38: 0.5}}, {"repetition_penalty": 1.1}]
)
def test_no_guess_is_merged_where_settings_change_scores(sampling: dict[str, Any]) -> None:
    engine = Engine(backend(plain()[:6]))
    steps, _ = run(engine, sampling=sampling, mode="hybrid", confidence=0.5, max_tokens=6)
    assert all(len(group) == 1 for group in steps[0].groups)


def corrected(guesses: list[int], mode: Any) -> list[Step]:
    """The steps of an answer that edits its prompt "cde"; token 39 is a digit, which no answer may insert."""
    engine = Engine(backend(guesses))
    edits = Edits(lambda token: b"7" if token == 39 else bytes([94 + token]), (EOS,))
    source = Sampler(SamplingSettings(), engine.info.vocab_size, constraint=edits)
    source.begin(PROMPT)
    decoding = Decoding(mode=mode, confidence=0.5, max_tokens=3)
    steps = list(engine.run([(token,) for token in PROMPT], decoding, source))
    check_the_books(engine, PROMPT, steps)
    assert engine.backend.macro_calls[0] >= len(PROMPT)
    return steps


@pytest.mark.parametrize("mode", ["hybrid", "verify"])
@pytest.mark.parametrize("right", [0, 2])
def test_first_draft_ends_before_the_first_token_that_edits_refuse(mode: str, right: int) -> None:
    """A regression: the loop chose no token for a refused one and ran out of draws to take back."""
    answer = said(corrected([], "verify"))
    steps = corrected([*answer[:right], 39, answer[right]], mode)
    assert said(steps)[:right] == answer[:right]
    assert list(steps[0].tokens) == answer[:right] or not right
    if mode == "verify":
        assert said(steps) == answer


def test_continued_answer_begins_from_a_row() -> None:
    """Its groups are those of an answer that was not cut."""
    answer = plain(tokens=16)
    engine = Engine(backend(answer[:12]))
    source, decoding = sampler(engine.backend), Decoding(mode="verify", confidence=0.5, max_tokens=8)
    source.begin(PROMPT)
    for _ in range(2):
        engine.backend.macro_calls.clear()
        list(engine.run([(token,) for token in [*PROMPT, *source.answer]], decoding, source))
    assert source.answer == answer
    assert engine.backend.macro_calls[0] == 1


def test_long_prompt_is_read_in_chunks_and_may_be_cancelled() -> None:
    prompt, cancel = list(range(3, 30)), Flag()
    guesses = plain(prompt)[:5]
    engine = Engine(backend(guesses), chunk=8)
    steps, stats = run(engine, prompt, mode="hybrid", confidence=NO_DOUBT, max_tokens=12)
    check_the_books(engine, prompt, steps)
    assert list(steps[0].tokens) == guesses
    assert max(engine.backend.macro_calls) <= 8
    assert stats.base_calls < len(engine.backend.macro_calls)
    engine = Engine(backend(guesses), chunk=8)
    engine.backend.before_macro = lambda it: cancel.set() if it.slots else None
    steps, _ = run(engine, prompt, mode="hybrid", confidence=0.5, cancel=cancel)
    assert (steps, engine.unread) == ([], [])
    assert engine.ledger.groups == engine.backend.context


def test_cancelled_first_draft_leaves_no_token_in_the_sampler() -> None:
    prompt, cancel = list(range(3, 30)), Flag()
    engine = Engine(backend(plain(prompt)[:5]), chunk=8)
    source = sampler(engine.backend, temperature=0.7, seed=3)
    source.begin(prompt)
    before = source.state()
    engine.backend.before_macro = lambda it: cancel.set()
    decoding = Decoding(mode="verify", confidence=0.5)
    assert not list(engine.run([(token,) for token in prompt], decoding, source, cancel=cancel))
    assert source.state() == before


def test_failing_call_delivers_no_token() -> None:
    engine = Engine(backend(plain()[:6]))
    source = sampler(engine.backend, temperature=0.7, seed=3)
    source.begin(PROMPT)
    before = source.state()
    with failing(engine.backend):
        list(engine.run([(t,) for t in PROMPT], Decoding(mode="hybrid", confidence=0.5), source))
    assert source.state() == before
    assert engine.ledger.groups == engine.backend.context == []
