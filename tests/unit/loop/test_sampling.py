from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamburger_edge.drafts.lookup import Copies
from hamburger_edge.errors import CheckpointError, InputError
from hamburger_edge.loop.backend import Floats
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
        ({"top_k": 1.5}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty must be from 0.01"),
        ({"presence_penalty": math.inf}, "presence_penalty"),
        ({"frequency_penalty": math.nan}, "frequency_penalty"),
        ({"logit_bias": {1: math.nan}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {12: 1.0}}, "token 12 .* vocabulary of 12"),
        ({"seed": 2**64}, "seed"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        sampler(**settings)


def test_greedy_takes_the_highest_with_its_softmax_probability() -> None:
    token, probability, _ = sampler().choose(SCORES)
    assert token == 1
    assert probability == pytest.approx(softmax(SCORES)[1], rel=1e-5)
    quiet = Sampler(SamplingSettings(), VOCAB, top_probabilities=None)
    assert math.isnan(quiet.choose(SCORES).probability)
    assert quiet.state()["draws"] == 0
    nearly = sampler(temperature=1e-30, seed=0)
    assert nearly.choose(SCORES)[:2] == (1, pytest.approx(1.0))


@pytest.mark.parametrize("changes", [{"logit_bias": {1: -100}}, {"repetition_penalty": 2.0}])
def test_scores_are_not_changed(changes: dict[str, Any]) -> None:
    scores = SCORES.copy()
    scores.flags.writeable = False  # runtimes hand out their own buffers
    source = sampler(**changes)
    source.begin([1])
    source.choose(scores)


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


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"top_k": 3}, {1, 2, 6}),
        ({"top_k": 99}, set(range(12))),
        ({"top_p": 0.64}, {1, 2}),
        ({"top_p": 0.65}, {1, 2, 6}),
        ({"top_p": 0.9}, {0, 1, 2, 5, 6, 11}),
        ({"top_p": 1e-9}, {1}),
        ({"min_p": 0.3}, {1, 2, 6}),
        ({"min_p": 1.0}, {1}),
        ({"top_k": 3, "top_p": 0.81}, {1, 2}),
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


def test_penalties_and_bias() -> None:
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
    assert sampler(logit_bias={7: 10.0}).choose(SCORES).token == 7


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
    drawing = sampler(temperature=1.0, seed=3)
    for _ in range(9):
        drawing.choose_judged(SCORES)
    assert len(drawing.answer) == drawing.state()["draws"] < 9  # a refused token costs no draw


def test_base_and_micro_scores_meet_the_same_draw() -> None:
    """Equal distributions give equal tokens, however the draft vocabulary is ranked."""
    draft_vocab = [6, 2, 9, 1, 0, 11]
    outside = [token for token in range(VOCAB) if token not in draft_vocab]
    base = sampler(temperature=1.0, seed=5, logit_bias=dict.fromkeys(outside, -100))
    micro = sampler(temperature=1.0, seed=5, draft_vocab=draft_vocab)
    for _ in range(200):
        assert base.choose(SCORES).token == micro.choose_micro(SCORES[draft_vocab]).token


@pytest.mark.parametrize(
    ("draw", "places", "share"),
    [
        (0.0, {100}, 0.25),
        (0.26, {300}, 0.25),
        (0.51, {301}, 0.5),
        (np.nextafter(1.0, 0.0), {301, 700}, 0.5),  # rounding may pick either, but nothing without weight
    ],
)
def test_a_draw_falls_on_a_weight_in_proportion(draw: float, places: set[int], share: float) -> None:
    """Over several blocks of weights, most of them empty."""
    weights = np.zeros(1000, dtype=np.float32)
    weights[[100, 300, 301, 700]] = [1, 1, 2, 1e-30]
    place, found = pick(weights, draw)
    assert place in places
    assert found == pytest.approx(share if place < 700 else 0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_to_choose_from(temperature: float) -> None:
    with pytest.raises(InputError, match="logit_bias"):
        sampler(logit_bias=dict.fromkeys(range(VOCAB), -100), temperature=temperature).choose(SCORES)
    for at, bad in ((7, math.nan), (7, math.inf), (slice(VOCAB), -math.inf)):
        scores = SCORES.copy()
        scores[at] = bad
        with pytest.raises(CheckpointError, match="not usable"):
            sampler(temperature=temperature).choose(scores)


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
def test_rewound_tokens_leave_no_trace(steps: list[int], seed: int) -> None:
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
    source, copy = sampler(**settings), sampler(**settings)
    source.begin([1, 2, 3])
    for _ in range(10):
        source.choose(SCORES)
    copy.restore(json.loads(json.dumps(source.state())))
    assert [source.choose(SCORES) for _ in range(30)] == [copy.choose(SCORES) for _ in range(30)]
    assert copy.state() == source.state()


def test_copies_of_an_older_session_begin_anew() -> None:
    mine = sampler()
    mine.copies.tried[1] = 3
    state = mine.state()
    mine.restore(state)
    assert mine.copies.tried == [0, 3, 0, 0, 0]
    assert state.pop("copies") == {"tried": [0, 3, 0, 0, 0], "kept": [0] * 5, "next": 0}
    for older in ({}, {"copies": {"tried": 3, "kept": 0, "next": 0}}):
        mine.restore(state | older)
        assert mine.copies == Copies()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "x"},
        {"draws": -1},
        {"answer": [99]},
        {"prompt": [-1]},
        {"copies": {"tried": [-1] * 5, "kept": [0] * 5, "next": 0}},
        {"copies": {"tried": [0], "kept": [0], "next": 0}},
    ],
)
def test_damaged_state_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        sampler().restore({**sampler().state(), **change})


def test_processors_change_the_scores_of_base_and_micro_steps() -> None:
    """A callable gets the tokens so far and the scores of the whole vocabulary."""
    calls: list[list[int]] = []

    def without_repetition(tokens: Sequence[int], scores: Floats) -> Floats:
        calls.append(list(tokens))
        scores[list(tokens)] = -np.inf
        return scores

    draft_vocab = np.array([7, 3, 5])
    source = Sampler(SamplingSettings(), 10, draft_vocab, processors=[without_repetition])
    source.begin([7])
    assert source.adjusts
    scores = np.arange(10, dtype=np.float32)
    assert source.choose(scores).token == 9
    assert source.choose(scores).token == 8
    micro = np.array([9, 2, 1], dtype=np.float32)
    choices = [source.choose_micro(micro) for _ in range(3)]
    assert [choice and choice.token for choice in choices] == [3, 5, None]  # the base chooses the next token
    assert calls == [[7], [7, 9], [7, 9, 8], [7, 9, 8, 3], [7, 9, 8, 3, 5]]
    assert scores.tolist() == list(range(10))
