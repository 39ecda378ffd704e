"""What a later call need not read again."""

from __future__ import annotations

from typing import Any

import pytest
from engine_runs import PROMPT, run, said, sampler
from scripted_backend import ScriptedBackend

from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats


def test_a_shared_beginning_is_not_read_again() -> None:
    backend = ScriptedBackend()
    engine = Engine(backend)
    run(engine, [5, 6, 7, 8, 9], max_tokens=4)
    backend.macro_calls.clear()
    steps, stats = run(engine, [5, 6, 7, 30, 31], max_tokens=1)
    assert (stats.prompt_tokens, stats.reused_tokens, backend.macro_calls) == (5, 3, [2])
    assert said(steps) == backend.plain([5, 6, 7, 30, 31], 1)


def test_the_same_prompt_again_reads_its_last_token() -> None:
    backend = ScriptedBackend()
    engine = Engine(backend)
    first, _ = run(engine, max_tokens=9)
    backend.macro_calls.clear()
    second, stats = run(engine, max_tokens=9)
    assert first == second
    assert (stats.reused_tokens, backend.macro_calls[0]) == (2, 1)


def test_merged_slots_stand_for_earlier_answers() -> None:
    backend = ScriptedBackend(p_stop=0.0, eos_rate=0)
    engine = Engine(backend)
    steps, _ = run(engine, max_tokens=12)
    longer = PROMPT + said(steps) + [20, 21]
    again, stats = run(engine, longer, max_tokens=5)
    assert said(again) == backend.plain(longer, 5)
    assert stats.reused_tokens == 3 + 8  # two merged slots; the third group had not been fed
    assert [len(group) for group in engine.ledger.groups[:5]] == [1, 1, 1, 4, 4]


@pytest.mark.parametrize("options", [{"mode": "verify"}, {"confidence": 1.0}, {"reuse": "groups"}])
def test_merged_slots_do_not_serve_exact_answers(options: dict[str, Any]) -> None:
    engine = Engine(ScriptedBackend(p_stop=0.0, eos_rate=0))
    steps, _ = run(engine, max_tokens=12)
    _, stats = run(engine, PROMPT + said(steps) + [20], max_tokens=3, **options)
    assert stats.reused_tokens == 3
    assert all(len(group) == 1 for group in engine.ledger.groups[:16])


def test_reuse_can_be_refused() -> None:
    engine = Engine(ScriptedBackend())
    run(engine)
    _, stats = run(engine, reuse="none")
    assert stats.reused_tokens == 0


def test_the_pending_group_is_fed_merged_when_the_sequence_goes_on() -> None:
    backend = ScriptedBackend(p_stop=0.0, eos_rate=0)
    engine = Engine(backend)
    steps, _ = run(engine, max_tokens=7)
    assert engine.unread == [steps[-1].tokens]
    assert len(engine.unread[0]) == 3
    prompt = [*engine.sequence, (20,), (21,)]
    more = list(engine.run(prompt, Decoding(max_tokens=3), sampler(backend), reuse="groups"))
    assert engine.ledger.groups[: len(prompt)] == prompt
    assert said(more) == backend.plain([t for g in prompt for t in g], 3)


def test_statistics_add_up() -> None:
    backend = ScriptedBackend(p_stop=0.0, eos_rate=0)
    engine = Engine(backend)
    _, stats = run(engine, max_tokens=12)
    assert (stats.tokens, stats.macro_steps, stats.micro_steps, stats.base_calls) == (12, 3, 9, 2)
    assert stats.tokens_per_step == 4
    assert engine.ledger.bytes == 5 * 100
    assert engine.ledger.bytes_uncompressed == 11 * 100
    json = stats.to_json()
    assert {"tokens", "macro_steps", "tokens_per_step", "slots", "kv_bytes", "ttft_s", "decode_tps"} <= set(
        json
    )
    assert (Stats().tokens_per_step, Stats().decode_tps) == (0, 0)
