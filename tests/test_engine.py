from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_backend import EOS, ScriptedBackend, info

from hamburger_edge.engine import Engine, Stats, Step
from hamburger_edge.errors import ContextFullError, HamburgerError, InputError
from hamburger_edge.sampling import Sampler, SamplingSettings
from hamburger_edge.settings import Decoding

PROMPT = [5, 6, 7]


def sampler(backend: ScriptedBackend, **options: Any) -> Sampler:
    return Sampler(SamplingSettings(**options), backend.info.vocab_size, backend.info.shortlist)


def run(
    engine: Engine, prompt: list[int] | None = None, sampling: dict[str, Any] | None = None, **options: Any
) -> tuple[list[Step], Stats]:
    passed = {name: options.pop(name) for name in ("cancel", "reuse") if name in options}
    source = sampler(engine.backend, **(sampling or {}))
    source.begin(prompt or PROMPT)
    stats = Stats()
    groups = [(token,) for token in (PROMPT if prompt is None else prompt)]
    return list(engine.run(groups, Decoding(**options), source, stats=stats, **passed)), stats


def said(steps: list[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def check_the_books(engine: Engine, prompt: list[int], steps: list[Step]) -> None:
    """What was said is what the ledger and the backend hold, slot by slot."""
    assert engine.ledger.groups == engine.backend.context
    assert [t for g in engine.sequence for t in g] == prompt + said(steps)
    assert engine.ledger.tokens + len(engine.pending) == len(prompt) + len(said(steps))


@settings(deadline=None, max_examples=150)
@given(
    prompt=st.lists(st.integers(3, 39), min_size=1, max_size=20),
    rule=st.sampled_from(["token", "slot"]),
    stop_rule=st.sampled_from(["before", "after"]),
    max_steps=st.integers(1, 6),
    max_tokens=st.integers(1, 40),
    confidence=st.floats(0, 1),
    force=st.integers(0, 6),
    eos_rate=st.sampled_from([0.0, 0.05, 0.5]),
    chunk=st.integers(1, 9),
)
def test_grouping_never_changes_the_text(
    prompt: list[int],
    rule: str,
    stop_rule: str,
    max_steps: int,
    max_tokens: int,
    confidence: float,
    force: int,
    eos_rate: float,
    chunk: int,
) -> None:
    shape = info(position_rule=rule, stop_rule=stop_rule, max_steps=max_steps)
    backend = ScriptedBackend(shape, eos_rate=eos_rate)
    engine = Engine(backend, chunk=chunk)
    forced = min(force, max_steps) or None
    steps, stats = run(engine, prompt, max_tokens=max_tokens, confidence=confidence, force_group=forced)
    expected = backend.plain(prompt, max_tokens)
    assert said(steps) == expected
    assert all(1 <= len(step.tokens) <= (forced or max_steps) for step in steps)
    assert [step.finish_reason for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert steps[-1].finish_reason == ("eos" if expected[-1] == EOS else "length")
    check_the_books(engine, prompt, steps)
    assert engine.ledger.slots == len(prompt) + len(steps) - 1
    assert (stats.tokens, stats.macro_steps) == (len(expected), len(steps))
    assert stats.micro_steps == backend.micro_calls
    assert stats.base_calls == len(steps) - 1
    assert max(backend.macro_calls) <= max(chunk, 1)


@settings(deadline=None, max_examples=100)
@given(
    prompt=st.lists(st.integers(3, 39), min_size=1, max_size=12),
    rule=st.sampled_from(["token", "slot"]),
    stop_rule=st.sampled_from(["before", "after"]),
    max_tokens=st.integers(1, 30),
    agreement=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    confidence=st.floats(0, 1),
    capacity=st.integers(12, 40),
    sampling=st.sampled_from(
        [
            {},
            {"temperature": 1.0, "seed": 7},
            {"temperature": 0.7, "seed": 1, "top_p": 0.9, "frequency_penalty": 0.8},
            {"repetition_penalty": 1.5, "presence_penalty": 0.4},
        ]
    ),
    shortlist=st.booleans(),
)
def test_verified_equals_plain(
    prompt: list[int],
    rule: str,
    stop_rule: str,
    max_tokens: int,
    agreement: float,
    confidence: float,
    capacity: int,
    sampling: dict[str, Any],
    shortlist: bool,
) -> None:
    frequent = np.random.default_rng(0).permutation(40)[:25] if shortlist else None
    shape = info(
        position_rule=rule,
        stop_rule=stop_rule,
        capacity=capacity,
        context_length=34,
        shortlist=frequent,
    )
    plain = Engine(ScriptedBackend(shape, agreement))
    steps, _ = run(plain, prompt, sampling, max_tokens=max_tokens, confidence=1.0)
    checked = Engine(ScriptedBackend(shape, agreement))
    verified, stats = run(
        checked,
        prompt,
        sampling,
        max_tokens=max_tokens,
        confidence=confidence,
        mode="verify",
        probabilities=True,
    )
    assert said(verified) == said(steps)
    assert verified[-1].finish_reason == steps[-1].finish_reason
    check_the_books(checked, prompt, verified)
    assert all(len(group) == 1 for group in checked.ledger.groups)
    assert all(len(s.tokens) == len(s.probabilities) == len(s.stop_probabilities) for s in verified)
    assert stats.base_calls <= len(said(verified))


class Chances(ScriptedBackend):
    """Chances to stop in a fixed order: one for each macro step and micro step."""

    def script(self, *chances: float) -> Chances:
        self.chances = list(chances)
        return self

    def stop(self, text: tuple[int, ...]) -> float:
        return self.chances.pop(0)


def test_by_rule_before_a_chance_speaks_of_the_token_after() -> None:
    # prefill: go on; first micro token: go on; second: stop -> a group of 3, and no micro step wasted
    backend = Chances(eos_rate=0.0).script(0.1, 0.1, 0.9, 0.9)
    steps, stats = run(Engine(backend), max_tokens=4, confidence=0.8)
    assert [len(step.tokens) for step in steps] == [3, 1]
    assert stats.micro_steps == 2
    assert steps[0].stop_probabilities == pytest.approx((0.1, 0.1, 0.9))


def test_by_rule_after_a_chance_speaks_of_its_own_token() -> None:
    # prefill: worth a try; first micro token: sure; second: not sure, so the base chooses it
    backend = Chances(info(stop_rule="after"), eos_rate=0.0).script(0.5, 0.1, 0.9, 0.9)
    steps, stats = run(Engine(backend), max_tokens=3, confidence=0.8)
    assert [len(step.tokens) for step in steps] == [2, 1]
    assert said(steps) == backend.plain(PROMPT, 3)
    assert stats.micro_steps == 2
    assert steps[0].stop_probabilities == pytest.approx((0.5, 0.1))
    # the base's own row says that not even a try is worth it
    backend = Chances(info(stop_rule="after"), eos_rate=0.0).script(0.9, 0.9)
    steps, stats = run(Engine(backend), max_tokens=2, confidence=0.8)
    assert [len(step.tokens) for step in steps] == [1, 1]
    assert stats.micro_steps == 0


def test_verifying_proposes_what_was_computed_unless_it_is_hopeless() -> None:
    # worth a try; not sure enough to go on, but the base looks at it anyway
    backend = Chances(info(stop_rule="after"), agreement=1.0, eos_rate=0.0).script(0.5, 0.5, 0.9, 0.9)
    steps, stats = run(Engine(backend), max_tokens=3, confidence=0.8, mode="verify")
    assert [len(step.tokens) for step in steps] == [2, 1]
    assert said(steps) == backend.plain(PROMPT, 3)
    assert (stats.micro_steps, stats.base_calls) == (1, 1)
    # a row of the base's call would be wasted on it
    backend = Chances(info(stop_rule="after"), agreement=1.0, eos_rate=0.0).script(0.5, 0.7, 0.9, 0.9)
    steps, stats = run(Engine(backend), max_tokens=2, confidence=0.8, mode="verify")
    assert [len(step.tokens) for step in steps] == [1, 1]
    assert stats.micro_steps == 1


def test_verifying_saves_base_calls() -> None:
    for agreement, most in ((1.0, 12), (0.8, 24)):
        backend = ScriptedBackend(agreement=agreement, p_stop=0.0, eos_rate=0.0)
        steps, stats = run(Engine(backend), max_tokens=40, mode="verify")
        assert said(steps) == backend.plain(PROMPT, 40)
        assert stats.base_calls <= most


def test_a_disagreeing_micro_decoder_is_believed_only_in_trust_mode() -> None:
    backend = ScriptedBackend(agreement=0.0, p_stop=0.0, eos_rate=0.0)
    trusted, _ = run(Engine(backend), max_tokens=12)
    assert said(trusted) != backend.plain(PROMPT, 12)
    assert said(trusted)[0] == backend.plain(PROMPT, 12)[0]


def test_confidence_decides_the_size_of_groups() -> None:
    for confidence, p_stop, size in (
        (0.8, 0.1, 4),
        (0.8, 0.3, 1),
        (0.0, 1.0, 4),
        (1.0, 0.0, 1),
        (0.5, 0.5, 4),
    ):
        steps, _ = run(
            Engine(ScriptedBackend(p_stop=p_stop, eos_rate=0)), max_tokens=8, confidence=confidence
        )
        assert [len(step.tokens) for step in steps] == [size] * (8 // size), (confidence, p_stop)


def test_full_confidence_never_asks_the_micro_decoder() -> None:
    backend = ScriptedBackend(p_stop=0.0)
    steps, stats = run(Engine(backend), max_tokens=10, confidence=1.0)
    assert backend.micro_calls == stats.micro_steps == 0
    assert said(steps) == backend.plain(PROMPT, 10)


def test_stop_probabilities_are_those_the_decision_was_made_on() -> None:
    steps, _ = run(Engine(ScriptedBackend(eos_rate=0)), max_tokens=60, confidence=0.5)
    sizes = {len(step.tokens) for step in steps[:-1]}
    assert sizes == {1, 2, 3, 4}
    for step in steps[:-1]:
        assert all(1 - p >= 0.5 for p in step.stop_probabilities[:-1])
        assert len(step.tokens) == 4 or 1 - step.stop_probabilities[-1] < 0.5


def test_probabilities_only_on_request() -> None:
    steps, _ = run(Engine(ScriptedBackend()), max_tokens=8)
    assert all(step.probabilities == () for step in steps)
    steps, _ = run(Engine(ScriptedBackend()), max_tokens=8, probabilities=True)
    assert all(0 < p <= 1 for step in steps for p in step.probabilities)
    assert all(len(step.probabilities) == len(step.tokens) for step in steps)


def test_forced_groups_ignore_the_stop_head() -> None:
    for force in (1, 2, 3, 4):
        steps, _ = run(
            Engine(ScriptedBackend(p_stop=1.0, eos_rate=0)), max_tokens=12, confidence=1.0, force_group=force
        )
        assert {len(step.tokens) for step in steps} == {force}


def test_end_token_inside_a_group_drops_the_rest() -> None:
    backend = ScriptedBackend(p_stop=0.0, eos_rate=0.15)
    inside = 0
    for first in range(3, 40):
        steps, _ = run(Engine(ScriptedBackend(p_stop=0.0, eos_rate=0.15)), [first], max_tokens=50)
        assert said(steps) == backend.plain([first], 50)
        inside += steps[-1].finish_reason == "eos" and 1 < len(steps[-1].tokens) < 4
    assert inside > 3  # the case does occur


def test_end_token_can_be_ignored() -> None:
    steps, _ = run(Engine(ScriptedBackend(eos_rate=0.5)), max_tokens=20, ignore_eos=True)
    assert len(said(steps)) == 20
    assert EOS in said(steps)[:-1]


def test_a_banned_shortlist_leaves_single_tokens() -> None:
    backend = ScriptedBackend(info(shortlist=np.array([5, 6])), p_stop=0.0, eos_rate=0)
    steps, _ = run(Engine(backend), max_tokens=6, sampling={"banned": (5, 6)})
    assert [len(step.tokens) for step in steps] == [1] * 6


# Limits


def test_prompt_that_does_not_fit() -> None:
    with pytest.raises(ContextFullError, match=r"9 slots .* holds 8"):
        run(Engine(ScriptedBackend(info(capacity=8))), [5] * 9)
    for rule in ("token", "slot"):
        with pytest.raises(ContextFullError, match=r"9 positions .* has 8"):
            run(Engine(ScriptedBackend(info(context_length=8, position_rule=rule))), [5] * 9)


@pytest.mark.parametrize("mode", ["trust", "verify"])
def test_context_runs_out_while_answering(mode: str) -> None:
    def finish(confidence: float, **shape: Any) -> tuple[list[int], Any, Engine]:
        engine = Engine(ScriptedBackend(info(**shape), p_stop=0.0, eos_rate=0))
        steps, _ = run(engine, [5] * 8, confidence=confidence, mode=mode, max_tokens=100)
        check_the_books(engine, [5] * 8, steps)
        return [len(step.tokens) for step in steps], steps[-1].finish_reason, engine

    sizes, reason, _ = finish(1.0, capacity=8)
    assert (sizes, reason) == ([1], "context")  # a full cache still has one readout to give
    sizes, reason, _ = finish(1.0, capacity=11)
    assert (sizes, reason) == ([1] * 4, "context")
    sizes, reason, engine = finish(0.5, capacity=11)
    assert (sum(sizes), reason) == ((16, "context") if mode == "trust" else (4, "context"))
    assert engine.ledger.slots == 11
    sizes, reason, _ = finish(0.5, context_length=13)  # positions 8+4-1 fits, the next group would sit at 15
    assert (sum(sizes), reason) == ((8, "context") if mode == "trust" else (6, "context"))
    if mode == "trust":
        sizes, reason, engine = finish(0.5, context_length=13, position_rule="slot")
        assert (sum(sizes), reason) == (4 * 6, "context")
        assert engine.ledger.slots == 13


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"confidence": -0.1}, "confidence"),
        ({"confidence": 2}, "confidence"),
        ({"confidence": math.nan}, "confidence"),
        ({"confidence": "high"}, "confidence"),
        ({"mode": "hope"}, "mode"),
        ({"force_group": 0}, "force_group"),
        ({"force_group": 5}, "force_group"),
        ({"probabilities": 1}, "probabilities"),
        ({"prompt": []}, "empty"),
        ({"prompt": [40]}, "token"),
        ({"prompt": [-1]}, "token"),
        ({"prompt": [1.5]}, "token"),
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
    for mode in ("trust", "verify"):
        engine, cancel = Engine(ScriptedBackend(eos_rate=0)), threading.Event()
        source = sampler(engine.backend)
        steps = []
        for step in engine.run([(5,)], Decoding(mode=mode), source, cancel=cancel):
            steps.append(step)
            if len(steps) == 3:
                cancel.set()
        assert [step.finish_reason for step in steps] == [None] * 3
        check_the_books(engine, [5], steps)
        assert source.answer == said(steps)  # nothing was chosen that was not said
        assert len(engine.backend.macro_calls) == (3 if mode == "trust" else 4)  # nothing was fed in vain


def test_cancelled_while_reading_the_prompt() -> None:
    cancel = threading.Event()
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


@pytest.mark.parametrize("mode", ["trust", "verify"])
@pytest.mark.parametrize("damage", ["half done", "all lost"])
def test_a_failing_backend_leaves_books_that_agree(mode: str, damage: str) -> None:
    backend = ScriptedBackend(eos_rate=0)
    engine = Engine(backend)

    def fail(it: ScriptedBackend) -> None:
        if it.slots > 9:
            it.context = it.context + [(1,)] * 2 if damage == "half done" else []
            raise RuntimeError("out of memory")

    backend.before_macro = fail
    with pytest.raises(RuntimeError):
        run(engine, mode=mode)
    backend.before_macro = None
    steps, _ = run(engine, max_tokens=9, mode=mode)
    assert said(steps) == backend.plain(PROMPT, 9)
    check_the_books(engine, PROMPT, steps)


def test_a_prompt_half_read_by_a_failing_backend_is_read_again() -> None:
    backend = ScriptedBackend()
    engine, prompt = Engine(backend, chunk=4), list(range(3, 15))

    def fail(it: ScriptedBackend) -> None:
        if it.slots == 4:
            it.context += [(1,)] * 4  # nonsense where the second chunk should be
            raise RuntimeError("out of memory")

    backend.before_macro = fail
    with pytest.raises(RuntimeError):
        run(engine, prompt)
    backend.before_macro = None
    steps, stats = run(engine, prompt, max_tokens=5)
    assert said(steps) == backend.plain(prompt, 5)
    assert stats.reused_tokens == 4


def test_damaged_scores_end_with_a_typed_error() -> None:
    backend = ScriptedBackend()
    backend.scores = lambda text, salt=0: np.full(40, np.nan, dtype=np.float32)  # type: ignore[method-assign]
    with pytest.raises(HamburgerError, match="not usable"):
        run(Engine(backend))


# Prefixes


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
    assert engine.pending == steps[-1].tokens
    assert len(engine.pending) == 3
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
