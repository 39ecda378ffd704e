"""The loop's tokens and groups on a scripted backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.engine_runs import PROMPT, PROMPTS, check_the_books, run, said, shapes
from helpers.scripted_backend import EOS, ScriptedBackend, info
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.drafts.drafting import Costs
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.loop.modes.fixed_groups import groups_of_size


@settings(max_examples=150)
@given(
    PROMPTS,
    shapes(max_group_tokens=st.integers(1, 6)),
    st.fixed_dictionaries({"max_tokens": st.integers(1, 40), "confidence": st.floats(0, 1)}),
    st.integers(0, 6),
    st.sampled_from([0.0, 0.05, 0.5]),
    st.integers(1, 9),
)
def test_grouping_never_changes_the_text(
    prompt: list[int], shape: ModelInfo, decoding: dict[str, Any], fixed: int, eos_rate: float, chunk: int
) -> None:
    backend = ScriptedBackend(shape, eos_rate=eos_rate)
    engine = Engine(backend, chunk=chunk)
    size = min(fixed, shape.max_group_tokens) or None
    steps, stats = run(engine, prompt, driver=groups_of_size(size) if size else None, **decoding)
    expected = backend.plain(prompt, decoding["max_tokens"])
    assert said(steps) == expected
    assert all(1 <= len(step.tokens) <= (size or shape.max_group_tokens) for step in steps)
    assert [step.finish_reason for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert steps[-1].finish_reason == ("eos" if expected[-1] == EOS else "length")
    check_the_books(engine, prompt, steps)
    assert engine.ledger.slots == len(prompt) + len(steps) - 1
    assert (stats.tokens, stats.macro_steps) == (len(expected), len(steps))
    assert stats.micro_steps == backend.micro_calls
    assert stats.base_calls == len(steps) - 1
    assert max(backend.macro_calls) <= chunk


FREQUENT = np.random.default_rng(0).permutation(40)[:25]
SAMPLERS = st.sampled_from(
    [
        {},
        {"temperature": 1.0, "seed": 7},
        {"temperature": 0.7, "seed": 1, "top_p": 0.9, "frequency_penalty": 0.8},
        {"temperature": 0.3, "seed": 2, "logit_bias": {5: -100, 6: -100, 7: -100}},
        {"repetition_penalty": 1.5, "presence_penalty": 0.4},
    ]
)
SMALL = {"cache_slots": st.integers(12, 40), "context_length": st.just(34)}


@settings(max_examples=100)
@given(
    PROMPTS,
    shapes(**SMALL, draft_vocab=st.sampled_from([None, FREQUENT])),
    st.integers(1, 30),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.floats(0, 1),
    SAMPLERS,
)
def test_verified_equals_plain(
    prompt: list[int],
    shape: ModelInfo,
    most: int,
    agreement: float,
    confidence: float,
    sampling: dict[str, Any],
) -> None:
    plain, checked = (Engine(ScriptedBackend(shape, agreement)) for _ in range(2))
    steps, _ = run(plain, prompt, sampling, max_tokens=most, confidence=1.0)
    verify: dict[str, Any] = {"mode": "verify", "confidence": confidence, "top_probabilities": 0}
    verified, stats = run(checked, prompt, sampling, max_tokens=most, **verify)
    assert said(verified) == said(steps)
    assert verified[-1].finish_reason == steps[-1].finish_reason
    check_the_books(checked, prompt, verified)
    assert all(len(group) == 1 for group in checked.ledger.groups)
    assert all(len(s.tokens) == len(s.probabilities) == len(s.stop_probabilities) for s in verified)
    assert stats.base_calls <= len(said(verified))


@pytest.mark.parametrize("stop_rule", ["before", "after"])
def test_sampled_token_other_than_the_likeliest_joins_no_group(stop_rule: str) -> None:
    """It judges the likeliest, and most draws at this temperature are not."""
    backend = ScriptedBackend(info(stop_rule=stop_rule), eos_rate=0.0, p_stop=0.1)
    steps, _ = run(Engine(backend), PROMPT, {"temperature": 1.0, "seed": 0}, max_tokens=400, confidence=0.5)
    assert {len(step.tokens) for step in steps} >= {1, 2}
    text = [*PROMPT]
    for step in steps:
        for place, token in enumerate(step.tokens):
            assert not place or token == backend.scores(tuple(text)).argmax()
            text.append(token)


class Chances(ScriptedBackend):
    """Chances to stop in a fixed order: one for each macro step and micro step."""

    def script(self, *chances: float) -> Chances:
        self.chances = list(chances)
        return self

    def stop(self, text: tuple[int, ...]) -> float:
        return self.chances.pop(0)


AFTER = {"stop_rule": "after"}


@pytest.mark.parametrize(
    ("shape", "options", "chances", "sizes", "micro_steps"),
    [
        # prefill: go on; first micro token: go on; second: stop -> a group of 3, and no micro step wasted
        ({"stop_rule": "before"}, {"confidence": 0.8}, (0.1, 0.1, 0.9, 0.9), [3, 1], 2),
        # prefill: worth a try; first micro token: sure; second: not sure, so the base chooses it
        (AFTER, {"confidence": 0.8}, (0.45, 0.1, 0.9, 0.9), [2, 1], 2),
        # the base's own row says that not even a try is worth it: less than two thirds of the confidence
        (AFTER, {"confidence": 0.8}, (0.48, 0.9, 0.48, 0.9), [1, 1], 0),
        (AFTER, {"confidence": 0.8}, (0.46, 0.9, 0.46, 0.9), [1, 1], 1),
        (AFTER, {"confidence": 0.9}, (0.46, 0.9, 0.46, 0.9), [1, 1], 0),
        # a chance of 0.5 is above the cost of a row; a further token is not worth its micro step
        (AFTER, {"mode": "verify"}, (0.45, 0.5, 0.9, 0.9), [2, 1], 1),
        # a row of the base's call would be wasted on it
        (AFTER, {"mode": "verify"}, (0.45, 0.9, 0.9, 0.9), [1, 1], 1),
        # where rows are dear, no micro step is tried
        ({**AFTER, "draft_costs": Costs(row=0.5)}, {"mode": "verify"}, (0.45, 0.5, 0.9, 0.9), [1, 1], 0),
        # but of an even number of slots the second of two costs nothing, however unlikely its token
        (
            {**AFTER, "draft_costs": Costs(row=0.5), "pairs_rows": True},
            {"mode": "verify"},
            (0.45, 0.9, 0.9, 0.9),
            [2, 1],
            1,
        ),
        # costs of this machine come first
        ({**AFTER, "machine_costs": Costs(row=0.5)}, {"mode": "verify"}, (0.45, 0.5, 0.9, 0.9), [1, 1], 0),
    ],
)
def test_micro_tokens_are_tried_and_joined_by_their_chances(
    shape: dict[str, Any],
    options: dict[str, Any],
    chances: tuple[float, ...],
    sizes: list[int],
    micro_steps: int,
) -> None:
    """Stop rule "before": the chance is of the following token. Rule "after": of the token itself."""
    backend = Chances(info(**shape), eos_rate=0.0).script(*chances)
    steps, stats = run(Engine(backend), max_tokens=sum(sizes), **options)
    assert [len(step.tokens) for step in steps] == sizes
    assert said(steps) == backend.plain(PROMPT, sum(sizes))
    assert (stats.micro_steps, stats.base_calls) == (micro_steps, 1)
    if "mode" not in options:
        assert steps[0].stop_probabilities == pytest.approx(chances[: sizes[0]])


@pytest.mark.parametrize(("slots", "size"), [(64, 2), (300, 1)])
def test_rows_are_dearer_behind_a_long_text(slots: int, size: int) -> None:
    """Attention to 300 slots makes a row cost 0.6 of a call: a chance of 0.5 is too small then."""
    costs = Costs(row=0.2, micro=0.01, row_slots=1.7)
    shape = info(**AFTER, machine_costs=costs, vocab_size=400)
    backend = Chances(shape, eos_rate=0.0).script(0.45, 0.5, *[0.9] * 8)
    prompt = list(range(3, 3 + slots))  # nothing to copy
    steps, _ = run(Engine(backend, chunk=512), prompt, mode="verify", max_tokens=size + 1)
    assert [len(step.tokens) for step in steps] == [size, 1]
    assert said(steps) == backend.plain(prompt, size + 1)


@pytest.mark.parametrize(
    ("p_stop", "options", "size"),
    [
        (0.3, {"confidence": 0.8}, 1),
        (1.0, {"confidence": 0.0}, 4),
        (0.0, {"confidence": 1.0}, 1),
        (0.5, {"confidence": 0.5}, 4),
        (1.0, {"confidence": 1.0, "driver": groups_of_size(3)}, 3),
    ],
)
def test_confidence_or_driver_decides_the_size_of_groups(
    p_stop: float, options: dict[str, Any], size: int
) -> None:
    """No micro step runs for a token that joins no group."""
    steps, stats = run(Engine(ScriptedBackend(p_stop=p_stop, eos_rate=0)), max_tokens=12, **options)
    assert [len(step.tokens) for step in steps] == [size] * (12 // size)
    assert bool(stats.micro_steps) == (size > 1)


def test_stop_probabilities_are_those_of_the_decision() -> None:
    steps, _ = run(Engine(ScriptedBackend(eos_rate=0)), max_tokens=60, confidence=0.5)
    assert {len(step.tokens) for step in steps[:-1]} == {1, 2, 3, 4}
    for step in steps[:-1]:
        assert all(1 - p >= 0.5 for p in step.stop_probabilities[:-1])
        assert len(step.tokens) == 4 or 1 - step.stop_probabilities[-1] < 0.5


def test_end_token_can_be_ignored() -> None:
    steps, _ = run(Engine(ScriptedBackend(eos_rate=0.5)), max_tokens=20, ignore_eos=True)
    assert len(said(steps)) == 20
    assert EOS in said(steps)[:-1]


def test_a_suppressed_draft_vocab_leaves_single_tokens() -> None:
    backend = ScriptedBackend(info(draft_vocab=np.array([5, 6])), p_stop=0.0, eos_rate=0)
    steps, _ = run(Engine(backend), max_tokens=6, sampling={"logit_bias": {5: -100, 6: -100}})
    assert [len(step.tokens) for step in steps] == [1] * 6
