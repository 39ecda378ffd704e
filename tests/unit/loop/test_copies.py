"""Drafts copied out of the prompt: where they come from, and that the base keeps only what it would say."""

from __future__ import annotations

from typing import Any

import numpy as np
from engine_runs import check_the_books, run, said
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_backend import EOS, ScriptedBackend, info

from hamburger_edge.loop.backend import Floats
from hamburger_edge.loop.copies import MOST, Copies
from hamburger_edge.loop.engine import Engine


def test_the_longest_match_is_gone_on_with() -> None:
    copies = Copies([5, 9, 1, 7, 9, 2, 8, 9, 3])
    assert copies.draft([4, 7, 9], 1) == (2, 8, 9, 3)
    assert copies.draft([8, 9], 1) == (3,)
    assert copies.draft([3], 1) == ()  # nothing follows
    assert copies.draft([6], 1) == ()


def test_a_draft_has_an_end() -> None:
    assert Copies(range(100)).draft([10], 1) == tuple(range(11, 11 + MOST))


def test_of_equal_matches_the_next_one_counts() -> None:
    copies = Copies([1, 50, 1, 51, 1, 52])
    assert copies.draft([1], 1)[0] == 50
    copies.settle(2)  # 50 was kept
    assert copies.draft([1, 50, 1], 1)[0] == 51  # two tokens match
    assert copies.draft([1, 60, 1], 1)[0] == 51
    copies.settle(5)  # 51, 1
    assert copies.draft([1, 60, 1, 51, 61, 1], 1)[0] == 52  # what lies behind comes last


def test_one_token_alone_counts_only_while_copying_goes_well() -> None:
    copies = Copies([1, 2, 3, 4, 5])
    assert copies.draft([2], least=2) == ()
    assert copies.draft([2], 1) == (3, 4, 5)
    copies.settle(1)  # nothing was kept
    assert copies.draft([9, 4], 1) == ()
    assert copies.draft([3, 4], 1) == (5,)
    copies.settle(3)
    assert copies.draft([9, 2], 1) == (3, 4, 5)


def test_without_a_draft_nothing_is_settled() -> None:
    copies = Copies([1, 2])
    copies.settle(0)
    assert copies.draft([1], 1) == (2,)


class Repeating(ScriptedBackend):
    """Says its prompt again, but for some tokens, and then ends."""

    def __init__(self, shape: Any, prompt: list[int], mistakes: float) -> None:
        super().__init__(shape, agreement=0.0)
        self.prompt, self.mistakes = prompt, mistakes

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Floats:
        scores = super().scores(text, salt)
        scores[EOS] = -9.0
        place = len(text) - len(self.prompt)
        slips = np.random.default_rng([5, *text]).random() < self.mistakes
        if not salt and place >= 0 and not slips:
            scores[self.prompt[place] if place < len(self.prompt) else EOS] = 9.0
        return scores


def test_an_answer_that_repeats_its_prompt_takes_few_calls() -> None:
    prompt = [*range(3, 24)]
    backend = Repeating(info(), prompt, 0.0)
    backend.p_stop = 1.0  # no micro step is worth trying
    steps, stats = run(Engine(backend), prompt, max_tokens=40, mode="verify", confidence=0.8)
    assert said(steps) == [*prompt, EOS]
    assert stats.micro_steps == 0
    assert stats.base_calls == 3  # 1 + 6 tokens in each of three; the last row says the end


@settings(max_examples=100)
@given(
    prompt=st.lists(st.integers(3, 39), min_size=1, max_size=12),
    mistakes=st.sampled_from([0.0, 0.2, 0.6]),
    max_tokens=st.integers(1, 30),
    cache_slots=st.integers(13, 40),
    stop=st.sampled_from([None, 0.0, 1.0]),
    sampling=st.sampled_from(
        [{}, {"temperature": 0.5, "seed": 3}, {"repetition_penalty": 1.3}, {"suppress_tokens": (5, 6)}]
    ),
)
def test_what_is_kept_is_what_plain_decoding_says(
    prompt: list[int],
    mistakes: float,
    max_tokens: int,
    cache_slots: int,
    stop: float | None,
    sampling: dict[str, Any],
) -> None:
    texts = []
    for decoding in ({"confidence": 1.0}, {"mode": "verify", "confidence": 0.5, "probabilities": True}):
        backend = Repeating(info(cache_slots=cache_slots), prompt, mistakes)
        backend.p_stop = stop
        engine = Engine(backend)
        steps, stats = run(engine, prompt, sampling, max_tokens=max_tokens, **decoding)
        check_the_books(engine, prompt, steps)
        texts.append((said(steps), steps[-1].finish_reason))
    assert texts[0] == texts[1]
    assert stats.base_calls <= len(texts[0][0])
    assert all(0 <= p <= 1 for step in steps for p in step.probabilities)
