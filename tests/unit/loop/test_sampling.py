from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamburger_edge.errors import CheckpointError, InputError
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.scores import pick
from hamburger_edge.loop.settings import SamplingSettings

VOCAB = 12
SCORES = np.array([0.5, 3.0, 2.9, -1.0, 0.0, 1.0, 2.0, -3.0, 0.1, 0.2, 0.3, 1.5], dtype=np.float32)


def sampler(vocab: int = VOCAB, draft_vocab: list[int] | None = None, **settings: object) -> Sampler:
    tokens = None if draft_vocab is None else np.array(draft_vocab)
    return Sampler(SamplingSettings(**settings), vocab, tokens)  # type: ignore[arg-type]


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores.astype(np.float64) - scores.max())
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty must be from 0.01"),
        ({"presence_penalty": math.inf}, "presence_penalty"),
        ({"frequency_penalty": math.nan}, "frequency_penalty"),
        ({"logit_bias": {1: math.nan}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {"a": -100}}, "logit_bias"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        SamplingSettings(**settings)  # type: ignore[arg-type]


def test_tokens_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(InputError, match=r"token 12 .* vocabulary of 12"):
        sampler(logit_bias={12: -100})
    with pytest.raises(InputError, match="token 99"):
        sampler(logit_bias={99: 1.0})


def test_greedy_takes_the_highest_with_its_softmax_probability() -> None:
    token, probability, _ = sampler().choose(SCORES)
    assert token == 1
    assert probability == pytest.approx(softmax(SCORES)[1], rel=1e-5)
    quiet = Sampler(SamplingSettings(), VOCAB, top_probabilities=None)
    assert math.isnan(quiet.choose(SCORES).probability)


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.7, "top_k": 4}, {"logit_bias": {3: 50.0}}])
def test_the_likeliest_tokens_are_those_of_the_distribution_that_chose(changes: dict[str, Any]) -> None:
    source = Sampler(SamplingSettings(seed=1, **changes), VOCAB, top_probabilities=VOCAB)
    for _ in range(20):
        token, probability, top = source.choose(SCORES)
        assert dict(top)[token] == pytest.approx(math.log(probability), abs=1e-5)
        assert sum(math.exp(each.logprob) for each in top) == pytest.approx(1)
        assert [each.logprob for each in top] == sorted((each.logprob for each in top), reverse=True)
        assert len(top) == (4 if "top_k" in changes else VOCAB)
    two = Sampler(SamplingSettings(seed=1, **changes), VOCAB, top_probabilities=2)
    assert two.choose(SCORES).top == top[:2]
    assert two.choose_micro(SCORES).top == ()


def test_greedy_draws_nothing_and_leaves_the_scores_alone() -> None:
    scores = SCORES.copy()
    scores.flags.writeable = False  # runtimes hand out their own buffers
    for changes in ({}, {"logit_bias": {1: -100}}, {"repetition_penalty": 2.0}, {"temperature": 1.0}):
        source = sampler(**changes)
        source.begin([1])
        source.choose(scores)
    assert sampler().state()["draws"] == 0


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({}, set(range(12))),
        ({"top_k": 3}, {1, 2, 6}),
        ({"top_k": 99}, set(range(12))),
        ({"top_p": 0.5}, {1, 2}),
        ({"top_p": 1e-9}, {1}),
        ({"min_p": 0.3}, {1, 2, 6}),
        ({"min_p": 1.0}, {1}),
        ({"top_k": 2, "top_p": 0.99}, {1, 2}),
        ({"logit_bias": {1: -100, 2: -100}, "top_k": 2}, {6, 11}),
        ({"temperature": 0.5}, set(range(12))),
        ({"temperature": 2.0}, set(range(12))),
    ],
)
def test_tokens_are_drawn_as_often_as_they_are_likely(settings: dict[str, Any], allowed: set[int]) -> None:
    """Of those that are left, in the distribution whose probabilities are reported."""
    settings = {"temperature": 1.0, "seed": 1, **settings}
    source = sampler(**settings)
    choices = [source.choose(SCORES) for _ in range(4000)]
    frequency = np.bincount([choice.token for choice in choices], minlength=VOCAB) / 4000
    weights = np.where(np.isin(np.arange(VOCAB), list(allowed)), softmax(SCORES / settings["temperature"]), 0)
    probabilities = weights / weights.sum()
    assert set(np.flatnonzero(frequency)) <= allowed
    np.testing.assert_allclose(frequency, probabilities, atol=0.03)
    for token, probability, _ in choices[:20]:
        assert probability == pytest.approx(probabilities[token], rel=1e-4)


@given(st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=60), st.floats(0.05, 0.999))
def test_top_p_keeps_the_smallest_sufficient_set(scores: list[float], top_p: float) -> None:
    values = np.array(scores, dtype=np.float32)
    probabilities = softmax(values)
    cut = np.sort(probabilities)[::-1]
    needed = int(np.searchsorted(np.cumsum(cut), top_p * (1 - 1e-6))) + 1
    source = sampler(vocab=len(scores), temperature=1.0, top_p=top_p, seed=3)
    for _ in range(20):
        token, probability, _ = source.choose(values)
        assert probabilities[token] >= cut[min(needed, len(cut) - 1)] * (1 - 1e-5)
        assert probability >= probabilities[token] * (1 - 1e-5)  # the rest was renormalised


def test_a_temperature_of_next_to_nothing_is_greedy() -> None:
    assert sampler(temperature=1e-30, seed=0).choose(SCORES)[:2] == (1, pytest.approx(1.0))


def test_penalties() -> None:
    source = sampler(repetition_penalty=4.0)
    source.begin([1])
    assert source.choose(SCORES).token == 2  # 3.0 / 4 < 2.9; and 2 is now said as well
    assert source.choose(SCORES).token == 6
    negative = sampler(repetition_penalty=4.0)
    negative.begin([0])
    assert negative.choose(np.full(VOCAB, -1.0, dtype=np.float32)).token == 1  # -1 * 4 < -1
    present = sampler(presence_penalty=0.5)
    present.begin([1, 1, 1])  # only the answer counts
    assert [present.choose(SCORES).token for _ in range(3)] == [1, 2, 1]
    frequent = sampler(frequency_penalty=0.15)
    assert [frequent.choose(SCORES).token for _ in range(4)] == [1, 2, 1, 2]
    frequent.begin([])  # a new answer starts from nothing
    assert frequent.choose(SCORES).token == 1


def test_bias_and_bans() -> None:
    assert sampler(logit_bias={7: 10.0}).choose(SCORES).token == 7
    assert sampler(logit_bias={1: -100}).choose(SCORES).token == 2
    assert sampler(logit_bias={1: -99.9, 2: -100, 3: -100}).choose(SCORES).token not in (2, 3)


def test_draft_vocab_speaks_in_token_ids() -> None:
    draft_vocab = [6, 2, 9, 1]  # ranked, not sorted
    micro = SCORES[draft_vocab]
    for bias, token in (({}, 1), ({1: -100, 0: -100}, 2), ({9: 9.0, 5: 99.0}, 9)):
        assert sampler(draft_vocab=draft_vocab, logit_bias=bias).choose_micro(micro).token == token
    penalised = sampler(draft_vocab=draft_vocab, presence_penalty=50.0)
    assert [penalised.choose_micro(micro).token for _ in range(4)] == [1, 2, 6, 9]
    assert penalised.choose(SCORES).token == 11  # the first token outside what micro steps said


def test_only_the_judged_token_of_a_micro_step_is_chosen() -> None:
    draft_vocab = [6, 2, 9, 1]  # the highest score is token 1's
    micro = SCORES[draft_vocab]
    judged, drafted = sampler(draft_vocab=draft_vocab), sampler(draft_vocab=draft_vocab)
    assert judged.choose_judged(micro) == drafted.choose_micro(micro)
    assert sampler(draft_vocab=draft_vocab, logit_bias={1: -100}).choose_judged(micro) is None
    penalised = sampler(draft_vocab=draft_vocab, presence_penalty=50.0)
    assert [penalised.choose_judged(micro) is None for _ in range(3)] == [False, True, True]
    assert penalised.answer == [1]


def test_a_token_that_nobody_judged_costs_no_draw() -> None:
    """The next choice meets the draw that was taken back: the base then says what was drawn, or its own."""
    judged, free = (sampler(temperature=1.0, seed=3) for _ in range(2))
    refused = 0
    for _ in range(200):
        choice = judged.choose_judged(SCORES)
        if choice is None:
            refused += 1
            choice = judged.choose(SCORES)
        else:
            assert choice.token == 1
        assert choice == free.choose(SCORES)
    assert 0 < refused < 200
    assert judged.state() == free.state()


def test_base_and_micro_scores_meet_the_same_draw() -> None:
    """Equal distributions give equal tokens, however the draft vocabulary is ranked."""
    draft_vocab = [6, 2, 9, 1, 0, 11]
    outside = [token for token in range(VOCAB) if token not in draft_vocab]
    base = sampler(temperature=1.0, seed=5, logit_bias=dict.fromkeys(outside, -100))
    micro = sampler(temperature=1.0, seed=5, draft_vocab=draft_vocab)
    for _ in range(200):
        assert base.choose(SCORES).token == micro.choose_micro(SCORES[draft_vocab]).token


def test_a_large_vocabulary_is_drawn_from_as_it_should() -> None:
    """Many blocks of weights, most of them empty: frequencies follow the probabilities, zeros never come."""
    random = np.random.default_rng(2)
    scores = np.full(5000, -np.inf, dtype=np.float32)
    likely = random.choice(5000, 12, replace=False)
    scores[likely] = random.normal(size=12)
    source = sampler(vocab=5000, temperature=1.0, seed=0)
    tokens, found, _ = zip(*(source.choose(scores) for _ in range(4000)), strict=True)
    probabilities = softmax(scores)
    frequency = np.bincount(tokens, minlength=5000) / 4000
    np.testing.assert_allclose(frequency, probabilities, atol=0.03)
    np.testing.assert_allclose(found, probabilities[list(tokens)], rtol=1e-4)


@pytest.mark.parametrize("draw", [0.0, np.nextafter(1.0, 0.0)])
def test_the_ends_of_the_distribution_have_weight(draw: float) -> None:
    weights = np.zeros(1000, dtype=np.float32)
    weights[[300, 301, 700]] = [1, 2, 1e-30]
    place, share = pick(weights, draw)
    assert weights[place] > 0
    assert share <= 1


def test_a_fully_suppressed_draft_vocab_is_known_beforehand() -> None:
    assert not sampler(draft_vocab=[3, 5], logit_bias={3: -100, 5: -100, 7: -100}).micro_usable
    assert sampler(draft_vocab=[3, 5], logit_bias={3: -100, 7: -100}).micro_usable


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_to_choose_from(temperature: float) -> None:
    with pytest.raises(InputError, match="logit_bias"):
        sampler(logit_bias=dict.fromkeys(range(VOCAB), -100), temperature=temperature).choose(SCORES)
    for bad in (math.nan, -math.inf, math.inf):
        with pytest.raises(CheckpointError, match="not usable"):
            sampler(temperature=temperature).choose(np.full(VOCAB, bad, dtype=np.float32))
    one_nan = SCORES.copy()
    one_nan[7] = math.nan
    with pytest.raises(CheckpointError):
        sampler(temperature=temperature).choose(one_nan)


def test_seeds() -> None:
    def said(seed: int | None) -> list[int]:
        source = sampler(temperature=1.5, seed=seed)
        return [source.choose(SCORES).token for _ in range(40)]

    assert said(1) == said(1)
    assert said(1) != said(2)
    assert said(None) != said(None)
    fresh = sampler(temperature=1.5)
    # its seed can be read and reused
    assert said(fresh.seed) == [fresh.choose(SCORES).token for _ in range(40)]


def test_noise_of_another_backend_does_not_change_the_text() -> None:
    random = np.random.default_rng(0)
    one, other = sampler(temperature=1.0, seed=9), sampler(temperature=1.0, seed=9)
    for _ in range(300):
        noise = random.normal(scale=1e-6, size=VOCAB).astype(np.float32)
        assert one.choose(SCORES).token == other.choose(SCORES + noise).token


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(0, 2**64 - 1))
def test_rewinding_is_as_if_it_had_never_been_said(steps: list[int], seed: int) -> None:
    settings = {"temperature": 1.0, "seed": seed, "frequency_penalty": 0.7, "repetition_penalty": 1.3}
    straight, wandering = sampler(**settings), sampler(**settings)
    straight.begin([4, 5])
    wandering.begin([4, 5])
    for astray in steps:
        for _ in range(astray):
            wandering.choose(-SCORES)
        wandering.rewind(astray)
        assert wandering.choose(SCORES) == straight.choose(SCORES)
    assert wandering.state() == straight.state()


def test_state_goes_through_json() -> None:
    settings = {"temperature": 1.0, "repetition_penalty": 1.5, "presence_penalty": 0.3}
    source = sampler(**settings)
    source.begin([1, 2, 3])
    for _ in range(10):
        source.choose(SCORES)
    copy = sampler(**settings)
    copy.restore(json.loads(json.dumps(source.state())))
    assert [source.choose(SCORES) for _ in range(30)] == [copy.choose(SCORES) for _ in range(30)]
    assert copy.state() == source.state()


@pytest.mark.parametrize("change", [{"seed": "x"}, {"draws": -1}, {"answer": [99]}, {"prompt": [-1]}])
def test_damaged_state_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        sampler().restore({**sampler().state(), **change})
