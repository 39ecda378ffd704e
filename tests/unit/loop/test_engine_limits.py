"""Ends of the loop (no room, bad input, cancelled, a failing backend), and slots that a later call reuses."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.engine_runs import PROMPT, check_the_books, run, said, sampler
from helpers.scripted_backend import Groups, ScriptedBackend, failing, info

from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.turns import Flag


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ({"cache_slots": 8}, r"9 slots .* holds 8"),
        ({"context_length": 8}, r"9 positions .* has 8"),
        # a larger cache would not help
        ({"cache_slots": 8, "context_length": 8, "position_rule": "slot"}, r"9 positions .* has 8"),
    ],
)
def test_prompt_that_does_not_fit(shape: dict[str, Any], named: str) -> None:
    with pytest.raises(ContextFullError, match=named):
        run(Engine(ScriptedBackend(info(**shape))), [5] * 9)


@pytest.mark.parametrize(
    ("shape", "mode", "confidence", "tokens"),
    [
        ({"cache_slots": 8}, "merge", 1.0, 1),  # a full cache still has one readout to give
        ({"cache_slots": 11}, "merge", 1.0, 4),
        ({"cache_slots": 11}, "merge", 0.5, 16),
        ({"cache_slots": 11}, "verify", 0.5, 4),
        ({"context_length": 13}, "merge", 0.5, 8),  # position 8+4-1 fits, the next group would sit at 15
        ({"context_length": 13}, "verify", 0.5, 6),
        ({"context_length": 13, "position_rule": "slot"}, "merge", 0.5, 24),
    ],
)
def test_context_runs_out_while_answering(
    shape: dict[str, Any], mode: str, confidence: float, tokens: int
) -> None:
    engine = Engine(ScriptedBackend(info(**shape), p_stop=0.0, eos_rate=0))
    steps, _ = run(engine, [5] * 8, confidence=confidence, mode=mode, max_tokens=100)
    check_the_books(engine, [5] * 8, steps)
    assert (len(said(steps)), steps[-1].finish_reason) == (tokens, "context")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"confidence": 2}, "confidence"),
        ({"mode": "hope"}, "mode"),
        ({"prompt": []}, "empty"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(options: dict[str, Any], named: str) -> None:
    engine = Engine(ScriptedBackend())
    run(engine, max_tokens=5)
    before = engine.sequence
    with pytest.raises(InputError, match=named):
        run(engine, **options)
    assert engine.sequence == before


@pytest.mark.parametrize(
    ("group", "error"), [([40], "a token must"), ([-1], "a token must"), ([], "got 0"), ([1] * 5, "got 5")]
)
def test_invalid_groups_are_refused(group: list[int], error: str) -> None:
    engine = Engine(ScriptedBackend())
    assert engine.check_groups([[1], [2, 3]]) == [(1,), (2, 3)]
    with pytest.raises(InputError, match=error):
        engine.check_groups([group])


@pytest.mark.parametrize("mode", ["merge", "verify"])
def test_cancelled_between_macro_steps(mode: Any) -> None:
    engine, cancel = Engine(ScriptedBackend(eos_rate=0)), Flag()
    source = sampler(engine.backend)
    steps = []
    for step in engine.run([(5,)], Decoding(mode=mode), source, cancel=cancel):
        steps.append(step)
        if len(steps) == 3:
            cancel.set()
            calls = len(engine.backend.macro_calls)
    assert [step.finish_reason for step in steps] == [None] * 3
    check_the_books(engine, [5], steps)
    assert source.answer == said(steps)  # nothing was chosen that was not said
    assert len(engine.backend.macro_calls) == calls  # nothing was fed in vain


def test_cancelled_while_reading_the_prompt() -> None:
    cancel = Flag()
    backend = ScriptedBackend()
    engine = Engine(backend, chunk=4)
    backend.before_macro = lambda it: cancel.set() if it.slots == 8 else None
    steps, _ = run(engine, list(range(3, 33)), cancel=cancel)
    assert steps == []
    assert backend.macro_calls == [4, 4, 4]
    backend.before_macro = None
    steps, stats = run(engine, list(range(3, 33)), max_tokens=5)
    assert stats.reused_tokens == 12  # read chunks are not read again
    assert said(steps) == backend.plain(list(range(3, 33)), 5)


def half_done(context: Groups) -> Groups:
    return context + [(1,)] * 2


def all_lost(context: Groups) -> Groups:
    return []


@pytest.mark.parametrize(
    ("mode", "left"), [("merge", half_done), ("hybrid", all_lost), ("verify", half_done)]
)
def test_ledger_agrees_with_a_failed_backend(mode: str, left: Any) -> None:
    backend = ScriptedBackend(eos_rate=0)
    engine = Engine(backend)
    with failing(backend, 10, left):
        run(engine, mode=mode)
    steps, _ = run(engine, max_tokens=9, mode=mode)
    assert said(steps) == backend.plain(PROMPT, 9)
    check_the_books(engine, PROMPT, steps)


def test_a_prompt_half_read_by_a_failing_backend_is_read_again() -> None:
    backend = ScriptedBackend()
    engine, prompt = Engine(backend, chunk=4), list(range(3, 15))
    with failing(backend, 4, half_done):  # nonsense where the second chunk should be
        run(engine, prompt)
    steps, stats = run(engine, prompt, max_tokens=5)
    assert said(steps) == backend.plain(prompt, 5)
    assert stats.reused_tokens == 4


def test_the_same_prompt_again_reads_its_last_token() -> None:
    backend = ScriptedBackend()
    engine = Engine(backend)
    first, _ = run(engine, max_tokens=9)
    backend.macro_calls.clear()
    second, stats = run(engine, max_tokens=9)
    assert first == second
    assert (stats.reused_tokens, backend.macro_calls[0]) == (2, 1)
    _, stats = run(engine, reuse="none")
    assert stats.reused_tokens == 0


def test_merged_slots_stand_for_earlier_answers() -> None:
    backend = ScriptedBackend(p_stop=0.0, eos_rate=0)
    engine = Engine(backend)
    steps, stats = run(engine, max_tokens=12)
    assert (stats.tokens, stats.macro_steps, stats.micro_steps, stats.base_calls) == (12, 3, 9, 2)
    assert (engine.ledger.bytes, engine.ledger.bytes_uncompressed) == (5 * 100, 11 * 100)
    assert (Stats().tokens_per_step, Stats().decode_tps) == (0, 0)
    longer = PROMPT + said(steps) + [20, 21]
    again, stats = run(engine, longer, max_tokens=5)
    assert said(again) == backend.plain(longer, 5)
    assert stats.prompt_tokens == 17
    assert stats.reused_tokens == 3 + 8  # two merged slots; the third group had not been fed
    assert [len(group) for group in engine.ledger.groups[:5]] == [1, 1, 1, 4, 4]


@pytest.mark.parametrize("options", [{"mode": "verify"}, {"confidence": 1.0}, {"reuse": "groups"}])
def test_merged_slots_do_not_serve_exact_answers(options: dict[str, Any]) -> None:
    engine = Engine(ScriptedBackend(p_stop=0.0, eos_rate=0))
    steps, _ = run(engine, max_tokens=12)
    _, stats = run(engine, PROMPT + said(steps) + [20], max_tokens=3, **options)
    assert stats.reused_tokens == 3
    assert all(len(group) == 1 for group in engine.ledger.groups[:16])
