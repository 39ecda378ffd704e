from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.tasks.proofreading.filters import words
from hamburger_edge.tasks.proofreading.misspellings import (
    CONFUSIONS,
    MISSPELLINGS,
    NEIGHBOURS,
    TEXT_SPEAK,
)
from hamburger_edge.tasks.proofreading.mistake_kinds import KINDS, SEEN, UNSEEN
from hamburger_edge.tasks.proofreading.mistakes import (
    CLEAN,
    HEAVY,
    LIGHT,
    WORDS_A_MISTAKE,
    NoiseModel,
    Noisy,
    one_slip_away,
)
from hamburger_edge.tasks.proofreading.text_kinds import KINDS as TEXT_KINDS

TEXTS = [text for kind in TEXT_KINDS for _, answer in kind.examples for text in answer.split("\n")]
COUNTS = {**dict.fromkeys(MISSPELLINGS, 0), **Counter(word for text in TEXTS for word in words(text))}
MODEL = NoiseModel(COUNTS, seed=3)
UNDOING = [
    "It's too late, and they're taking their dog to the lake.",
    "You're welcome to bring your own chairs.",
    "Who's going to lose more than I did?",
    "You should have told me, so I can hear it. Where are they?",
    "Whose coat is this? There are two, and there's a hole in it.",
]


def undone(noisy: Noisy, right: str) -> str:
    """The noisy text, with the words that its mistakes name put back."""
    words = right.split(" ")
    text, at = noisy.text, 0
    for i, word in enumerate(words):
        mistake = next((m for m in noisy.mistakes if m.index <= i < m.index + m.count), None)
        if mistake is None:
            assert text[at:].startswith(word)
            at += len(word) + 1
        elif mistake.index == i:
            assert text[at:].startswith(mistake.wrong)
            there = " ".join(words[i : i + mistake.count])
            text = text[:at] + there + text[at + len(mistake.wrong) :]
            at += len(there) + 1
    return text


@settings(max_examples=300)
@given(text=st.sampled_from(TEXTS + UNDOING), index=st.integers(-(2**40), 2**40), seed=st.integers(0, 2**63))
def test_a_mistake_is_where_it_says(text: str, index: int, seed: int) -> None:
    model = NoiseModel(COUNTS, seed)
    for noisy in (model.apply(text, index), model.apply_unseen(text, index)):
        assert undone(noisy, text) == text
        assert (noisy.text == text) == (not noisy.mistakes)
        assert len(noisy.mistakes) <= max(1, len(text.split(" ")) / WORDS_A_MISTAKE)
        assert all(m.wrong != " ".join(text.split(" ")[m.index : m.index + m.count]) for m in noisy.mistakes)


@given(order=st.permutations(range(40)))
@settings(max_examples=10)
def test_the_same_seed_and_index_make_the_same_mistakes_in_any_order(order: list[int]) -> None:
    model = NoiseModel(COUNTS, seed=3)
    assert {i: model.apply(TEXTS[i], i) for i in order} == {i: MODEL.apply(TEXTS[i], i) for i in range(40)}


def test_another_seed_makes_others() -> None:
    other = NoiseModel(COUNTS, seed=4)
    assert [MODEL.apply(TEXTS[i], i) for i in range(20)] != [other.apply(TEXTS[i], i) for i in range(20)]


def test_rates_are_as_documented() -> None:
    long = [text for text in TEXTS if len(text.split()) >= 13]
    counts = [len(MODEL.apply(text, 1000 * n + i).mistakes) for n, text in enumerate(long) for i in range(40)]
    assert len(counts) > 1500
    share = {n: counts.count(n) / len(counts) for n in range(7)}
    assert share[0] == pytest.approx(CLEAN, abs=0.03)
    assert share[1] + share[2] == pytest.approx(LIGHT, abs=0.04)
    assert share[3] + share[4] + share[5] == pytest.approx(HEAVY, abs=0.04)
    assert share[6] == 0


def test_every_kind_is_made_and_the_unseen_ones_only_where_asked() -> None:
    seen: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    for n, text in enumerate(TEXTS + UNDOING):
        for i in range(12):
            seen.update(m.kind for m in MODEL.apply(text, 100 * n + i).mistakes)
            unseen.update(m.kind for m in MODEL.apply_unseen(text, 100 * n + i).mistakes)
    assert set(seen) == set(SEEN)
    assert set(UNSEEN) <= set(unseen)
    assert set(SEEN).isdisjoint(UNSEEN)
    assert len(KINDS) == len(SEEN) + len(UNSEEN)
    letters = sum(seen[kind] for kind in ("neighbour_key", "swapped_letters", "dropped_letter"))
    assert seen.total() / 6 < letters < seen.total() / 2  # slips of the fingers lead, and are not all


def test_an_unseen_line_has_a_mistake_of_an_unseen_kind() -> None:
    for i, text in enumerate(TEXTS):
        noisy = MODEL.apply_unseen(text, i)
        assert not noisy.mistakes or any(m.kind in UNSEEN for m in noisy.mistakes)


def test_a_slip_makes_no_other_word() -> None:
    slips = ("neighbour_key", "swapped_letters", "dropped_letter", "doubled_letter", "inserted_letter")
    for i in range(2000):
        for mistake in MODEL.apply(TEXTS[i % len(TEXTS)], i).mistakes:
            if mistake.kind in slips:
                wrong = mistake.wrong.strip(".,!?:").lower()
                right = TEXTS[i % len(TEXTS)].split(" ")[mistake.index].strip(".,!?:").lower()
                assert wrong not in COUNTS
                assert COUNTS[right] >= sum(COUNTS.get(w, 0) for w in one_slip_away(wrong) if w != right)


def test_of_two_words_as_near_only_the_frequent_one_is_misspelled() -> None:
    model = NoiseModel({"house": 9, "horse": 2, "host": 0}, seed=0)
    assert model.undoable("house", "hoise")
    assert not model.undoable("horse", "hoise")
    assert not model.undoable("house", "host")


def test_confusions_stand_where_the_words_around_decide() -> None:
    made: dict[str, set[str]] = {}
    for text in UNDOING:
        for i in range(400):
            for m in MODEL.apply(text, i).mistakes:
                if m.kind in {row[0] for row in CONFUSIONS}:
                    made.setdefault(text.split(" ")[m.index], set()).add(m.wrong)
    assert made["It's"] == {"Its"}
    assert made["they're"] == {"their", "there"}
    assert made["too"] == {"to"}
    assert made["You're"] == {"Your"}
    assert made["Who's"] == {"Whose"}
    assert made["have"] == {"of"}
    assert made["There"] == {"Their"}
    assert made["Where"] == {"Were"}
    assert made["hear"] == {"here"}
    assert made["to"] == {"too"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("I'll be there.", "I'll"),
        ("We'll have tea.", "We'll"),
        ("We're going now.", "We're"),
        ("I don't.", "don't."),
    ],
)
def test_an_apostrophe_is_left_out_where_it_is_missed(text: str, word: str) -> None:
    made = [mistake for i in range(400) for mistake in MODEL.apply(text, i).mistakes]
    wrong = {mistake.wrong.lower() for mistake in made if mistake.kind == "missing_apostrophe"}
    assert wrong == {word.replace("'", "").lower()}


@pytest.mark.parametrize("text", ["He'll sit down there.", "We'd better not.", "Are you sure we're late?"])
def test_an_apostrophe_stays_where_another_word_would_come_of_it(text: str) -> None:
    kinds = {m.kind for i in range(400) for m in MODEL.apply(text, i).mistakes}
    assert "missing_apostrophe" not in kinds


def test_tables_are_sound() -> None:
    forms = [form for wrong in MISSPELLINGS.values() for form in wrong]
    assert len(MISSPELLINGS) >= 150
    assert not set(forms) & set(MISSPELLINGS)
    assert len(forms) == len(set(forms))
    assert all(right not in wrong for right, wrong in [*MISSPELLINGS.items(), *TEXT_SPEAK.items()])
    assert sorted(NEIGHBOURS) == list("abcdefghijklmnopqrstuvwxyz")
    assert all(letter in NEIGHBOURS[other] for letter in NEIGHBOURS for other in NEIGHBOURS[letter])
    assert {row[0] for row in CONFUSIONS} <= set(SEEN)
