"""Where the loop ends: no room, bad input, cancelled, a backend that fails."""

from __future__ import annotations

from typing import Any

import pytest
from engine_runs import PROMPT, check_the_books, run, said, sampler
from scripted_backend import Groups, ScriptedBackend, failing, info

from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.turns import Flag


def test_prompt_that_does_not_fit() -> None:
    with pytest.raises(ContextFullError, match=r"9 slots .* holds 8"):
        run(Engine(ScriptedBackend(info(cache_slots=8))), [5] * 9)
    for rule in ("token", "slot"):
        with pytest.raises(ContextFullError, match=r"9 positions .* has 8"):
            run(Engine(ScriptedBackend(info(context_length=8, position_rule=rule))), [5] * 9)
        with pytest.raises(ContextFullError, match=r"9 positions .* has 8: shorten it$"):
            run(Engine(ScriptedBackend(info(cache_slots=8, context_length=8, position_rule=rule))), [5] * 9)


@pytest.mark.parametrize("mode", ["merge", "verify"])
def test_context_runs_out_while_answering(mode: str) -> None:
    def finish(confidence: float, **shape: Any) -> tuple[list[int], Any, Engine]:
        engine = Engine(ScriptedBackend(info(**shape), p_stop=0.0, eos_rate=0))
        steps, _ = run(engine, [5] * 8, confidence=confidence, mode=mode, max_tokens=100)
        check_the_books(engine, [5] * 8, steps)
        return [len(step.tokens) for step in steps], steps[-1].finish_reason, engine

    sizes, reason, _ = finish(1.0, cache_slots=8)
    assert (sizes, reason) == ([1], "context")  # a full cache still has one readout to give
    sizes, reason, _ = finish(1.0, cache_slots=11)
    assert (sizes, reason) == ([1] * 4, "context")
    sizes, reason, engine = finish(0.5, cache_slots=11)
    assert (sum(sizes), reason) == ((16, "context") if mode == "merge" else (4, "context"))
    assert engine.ledger.slots == 11
    sizes, reason, _ = finish(0.5, context_length=13)  # positions 8+4-1 fits, the next group would sit at 15
    assert (sum(sizes), reason) == ((8, "context") if mode == "merge" else (6, "context"))
    if mode == "merge":
        sizes, reason, engine = finish(0.5, context_length=13, position_rule="slot")
        assert (sum(sizes), reason) == (4 * 6, "context")
        assert engine.ledger.slots == 13


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"confidence": 2}, "confidence"),
        ({"mode": "hope"}, "mode"),
        ({"force_group": 0}, "force_group"),
        ({"force_group": 5}, "force_group"),
        ({"prompt": []}, "empty"),
        ({"prompt": [40]}, "token"),
        ({"prompt": [-1]}, "token"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(options: dict[str, Any], named: str) -> None:
    engine = Engine(ScriptedBackend())
    run(engine, max_tokens=5)
    before = engine.sequence
    with pytest.raises(InputError, match=named):
        run(engine, **options)
    assert engine.sequence == before


# Cancelling and failing


def test_cancelled_between_macro_steps() -> None:
    for mode in ("merge", "verify"):
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
    assert stats.reused_tokens == 12  # what had been read is not read again
    assert said(steps) == backend.plain(list(range(3, 33)), 5)


def half_done(context: Groups) -> Groups:
    return context + [(1,)] * 2


def all_lost(context: Groups) -> Groups:
    return []


@pytest.mark.parametrize("mode", ["merge", "hybrid", "verify"])
@pytest.mark.parametrize("left", [half_done, all_lost])
def test_a_failing_backend_leaves_books_that_agree(mode: str, left: Any) -> None:
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
