"""The draft index: the form of answers is in it, the content of single answers is not."""

from __future__ import annotations

import random

import pytest

from hamburger_edge.loop.draft_index import DraftIndex
from hamburger_edge.tuning import draft_index
from hamburger_edge.tuning.draft_index import LEAST_ANSWERS, build_draft_index

END, VOCAB = 2, 5000
FORM = [10, 11, 12, 13]


def answers(count: int, seed: int = 0) -> list[list[int]]:
    """One form, one word that every answer has of its own, and one of two ends."""
    draw = random.Random(seed)
    return [
        [*FORM, 1000 + seed * 2000 + n, *((20, 21) if draw.random() < 0.75 else (22,)), END]
        for n in range(count)
    ]


def index_of(learned: list[list[int]], held_out: list[list[int]], **options: int) -> DraftIndex:
    return DraftIndex(
        build_draft_index(learned, [([], answer) for answer in held_out], VOCAB, **options), VOCAB
    )


def test_the_form_is_known_and_words_of_one_answer_are_not() -> None:
    index = index_of(answers(200), answers(100, 1))
    for length in range(len(FORM)):
        guess = index.guess(FORM[:length])
        assert guess.token == FORM[length]
        assert guess.chance > 0.98
        assert guess.floor > 0.95
    assert index.guess([*FORM, 1000]) is None
    assert index.guess([*FORM, 1000, 20]).token == 21


def test_chances_are_what_held_out_answers_show() -> None:
    split = [[*FORM, 30 if n % 4 else 31, 4000 + n, END] for n in range(400)]
    index = index_of(split, split[:200])
    assert index.guess(FORM).token == 30
    assert index.guess(FORM).chance == pytest.approx(0.75, abs=0.02)
    other = [[*FORM, 31, 4000 + n, END] for n in range(200)]  # where the other word is usual
    assert index_of(split, other).guess(FORM).chance < 0.05


@pytest.mark.parametrize("times", [1, 400])
def test_a_secret_of_few_answers_is_not_in_the_file(times: int) -> None:
    """However often an answer is repeated, it is one answer; four that share it are too few."""
    secret = [900, 901, 902, 903]
    owners = [[*FORM, *secret, 40 + n, END] for n in range(LEAST_ANSWERS - 1)]
    data = build_draft_index(answers(200) + owners * times, [], VOCAB)
    index = DraftIndex(data, VOCAB)
    told = {
        int(token) for token in __import__("numpy").frombuffer(data, "<u4", len(index), 64 + 4 * len(index))
    }
    assert not told & set(secret)
    shared = DraftIndex(
        build_draft_index([*answers(200), *owners, [*FORM, *secret, 50, END]], [], VOCAB), VOCAB
    )
    assert shared.guess([*FORM, 900]).token == 901  # five do share it


def test_floors_grow_with_the_answers_behind_them() -> None:
    few, many = (index_of(answers(count), answers(100, 1)).guess(FORM[:1]) for count in (20, 2000))
    assert few.floor < 0.9 < 0.99 < many.floor <= many.chance


def test_the_file_keeps_to_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_index, "MOST_BYTES", most := 1 << 12)
    draw = random.Random(3)
    wide = [[draw.randrange(20) for _ in range(30)] for _ in range(300)]
    data = build_draft_index(wide, [], VOCAB, least=2)
    assert 0.9 * most < len(data) <= most
    index = DraftIndex(data, VOCAB)
    assert all(index.guess(answer[:1]) for answer in wide[:50])  # short contexts stay before long ones
