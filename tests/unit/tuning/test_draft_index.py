"""The draft index: the form of answers is in it, the content of single answers is not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hamburger_edge.drafts.copied_words import COPY, START, Words
from hamburger_edge.drafts.draft_index import DraftIndex, Guess
from hamburger_edge.drafts.drafting import Drafter
from hamburger_edge.tuning import draft_index
from hamburger_edge.tuning.draft_counts import Pair
from hamburger_edge.tuning.draft_index import LEAST_ANSWERS, build_draft_index

END, VOCAB = 2, 5000
FORM = [10, 11, 12, 13]


def answers(count: int, seed: int = 0) -> list[list[int]]:
    """Answers of one form: each has a unique word and one of two ends."""
    draw = random.Random(seed)
    return [
        [*FORM, 1000 + seed * 2000 + n, *((20, 21) if draw.random() < 0.75 else (22,)), END]
        for n in range(count)
    ]


def index_of(learned: list[list[int]], held_out: list[list[int]]) -> DraftIndex:
    return DraftIndex(build_draft_index(alone(learned), alone(held_out), VOCAB), VOCAB)


def alone(answers: list[list[int]]) -> list[Pair]:
    """Answers without prompts."""
    return [([], answer) for answer in answers]


def tokens_in(data: bytes) -> set[int]:
    entries = len(DraftIndex(data, VOCAB))
    return set(np.frombuffer(data, "<u4", entries, 64 + 4 * entries).tolist())


def after(index: DraftIndex, answer: list[int]) -> Guess:
    return index.guess([START, *answer])  # type: ignore[return-value]


def test_index_holds_the_form_and_no_word_of_a_single_answer() -> None:
    index = index_of(answers(200), answers(100, 1))
    for length in range(len(FORM)):
        guess = after(index, FORM[:length])
        assert guess.token == FORM[length]
        assert guess.chance > 0.98
        assert guess.floor > 0.95
    assert index.guess([START, *FORM, 1000]) is None
    assert after(index, [*FORM, 1000, 20]).token == 21


def test_chances_are_fitted_to_held_out_answers() -> None:
    split = [[*FORM, 30 if n % 4 else 31, 4000 + n, END] for n in range(400)]
    index = index_of(split, split[:200])
    assert after(index, FORM).token == 30
    assert after(index, FORM).chance == pytest.approx(0.75, abs=0.02)
    other = [[*FORM, 31, 4000 + n, END] for n in range(200)]  # where the other word is usual
    assert after(index_of(split, other), FORM).chance < 0.05


@pytest.mark.parametrize("times", [1, 400])
def test_text_of_few_answers_is_not_in_the_file(times: int) -> None:
    """However often an answer is repeated, it is one answer; four that share it are too few."""
    secret = [900, 901, 902, 903]
    owners = [[*FORM, *secret, 40 + n, END] for n in range(LEAST_ANSWERS - 1)]
    data = build_draft_index(alone(answers(200) + owners * times), [], VOCAB)
    assert not tokens_in(data) & set(secret)
    shared = index_of([*answers(200), *owners, [*FORM, *secret, 50, END]], [])
    assert after(shared, [*FORM, 900]).token == 901  # five do share it


def test_floors_grow_with_the_number_of_answers() -> None:
    few, many = (after(index_of(answers(count), answers(100, 1)), FORM[:1]) for count in (20, 2000))
    assert few.floor < 0.9 < 0.99 < many.floor <= many.chance


def test_file_stays_below_its_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_index, "MOST_BYTES", most := 1 << 12)
    draw = random.Random(3)
    wide = [[draw.randrange(20) for _ in range(30)] for _ in range(300)]
    data = build_draft_index(alone(wide), [], VOCAB, least=2)
    assert 0.9 * most < len(data) <= most
    index = DraftIndex(data, VOCAB)
    # short contexts stay before long ones
    assert all(index.guess([START, *answer[:1]]) for answer in wide[:50])


IN, AT, SAY = 50, 51, 52  # tokens: " in", " at", "say"
BARE = 1000  # "Oslo" is " Oslo" plus this


def piece(token: int) -> bytes:
    if token < 10:
        return b""  # special
    return b" w" if token in (IN, AT) or 1000 <= token < 3000 else b"w"


class Spelled(Words):
    """Every word is one token, which has another number without its space."""

    def of(self, prompt: object) -> object:
        found = super().of(prompt)
        return {at: word._replace(tokens=(prompt[at] + BARE,)) for at, word in found.items()}


def commands(count: int, seed: int) -> list[Pair]:
    """Either name may come first in a command; the answer copies the one after "in"."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        name, other = 1000 + draw.randrange(900), 2000 + draw.randrange(900)
        parts = [[IN, name], [AT, other]]
        draw.shuffle(parts)
        found.append(([1, SAY, *parts[0], *parts[1], 2], [*FORM, name + BARE, 20, END]))
    return found


def test_copied_word_is_predicted_by_its_context_and_not_stored() -> None:
    words = Spelled(piece, lambda text: [0])
    data = build_draft_index(commands(400, 0), commands(100, 1), VOCAB, words)
    assert tokens_in(data) <= {*FORM, 20, END, COPY}
    index = DraftIndex(data, VOCAB)
    assert after(index, FORM).token == COPY
    for prompt, answer in commands(20, 2):
        drafter = Drafter(prompt, index, words)
        assert drafter.guess(FORM).token == answer[len(FORM)]
        assert drafter.guess(FORM).chance > 0.9
        assert drafter.guess(answer[: len(FORM) + 1]).token == 20  # one word, although the prompt goes on
    assert index.rates.tokens > 5  # whole answers pass in one call
    assert index.rates.rows >= index.rates.tokens


def test_a_few_labels_give_an_empty_index_and_words_are_still_copied() -> None:
    """No context is shared by enough different answers."""
    labels = [([7, 8, 9, label], [label, 2]) for label in (11, 12, 13) for _ in range(20)]
    index = DraftIndex(build_draft_index(labels, labels, VOCAB), VOCAB)
    assert not index
    copied = Drafter([7, 8, 9, 11], index).guess([8])
    assert copied is not None
    assert copied.token == 9
