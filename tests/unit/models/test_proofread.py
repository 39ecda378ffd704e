"""The parts of `proofread`: texts, mistakes, tokens, and the counts of its evaluation."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from hamburger_edge.models.zoo.proofread.making.judge import Count, changed
from hamburger_edge.models.zoo.proofread.making.mistakes import NoiseModel
from hamburger_edge.models.zoo.proofread.making.names import Names
from hamburger_edge.models.zoo.proofread.making.numbers import NUMBER, other_numbers
from hamburger_edge.models.zoo.proofread.making.sources import Cleaner, other_names, side
from hamburger_edge.models.zoo.proofread.making.templates import PATTERNS, Filler
from hamburger_edge.models.zoo.proofread.making.tokens import END, START, Encoded
from hamburger_edge.models.zoo.proofread.making.words import COMMON, Words, even

TEXT = "Dexter paid $55 to Ann O'Hara yesterday because the ukulele was broken."
NAMES = Names(("Zoe",), ("Quill",), ("Bergen",), ("Acme",), ("Elm Way",))


@pytest.fixture(scope="module")
def words() -> Words:
    common = "paid to yesterday because the was broken they know whether their house is too small a i".split()  # noqa: SIM905
    counts = {**dict.fromkeys(common, 10 * COMMON), "ukulele": 5, "wether": 3}
    return Words(
        counts,
        names=frozenset({"dexter", "ann"}),
        misspelled={"because": ("becuase",)},
        reserved={"because": ("beacuse",)},
        wrong=frozenset({"becuase", "beacuse"}),
        kept_back=frozenset({"beacuse", "yesteday"}),
    )


def test_mistakes_spare_names_numbers_and_rare_words(words: Words) -> None:
    model = NoiseModel(words)
    texts = [model.apply(TEXT, str(seed)) for seed in range(600)]
    spoiled = [each for each in texts if each.mistakes]
    assert 0.35 < 1 - len(spoiled) / len(texts) < 0.6
    for kept in ("Dexter", "$55", "Ann", "O'Hara", "ukulele"):
        assert all(kept in each.text for each in texts)
    assert any("becuase" in each.text for each in texts)
    assert not any("beacuse" in each.text or "yesteday" in each.text for each in texts)
    assert model.apply(TEXT, "7") == NoiseModel(words).apply(TEXT, "7")
    assert not model.undoable("whether", "wether")  # another word
    assert model.undoable("whether", "whethr")


def test_similar_texts_are_on_one_side_of_the_split() -> None:
    assert {even(word) for word in ("becuase", "recieve", "adress", "seperate", "untill")} == {True, False}
    texts = [
        f"I need {number} tickets to {city}." for number, city in ((2, "Rome"), (71, "Oslo"), (3, "Lima"))
    ]
    assert len({side(text) for text in texts}) == 1
    assert {side(f"text {letter * 9} here") for letter in "abcdefghijklmnopqrstuvwxyz" * 9} >= {"train"}


def test_faulty_texts_are_excluded(words: Words) -> None:
    cleaner = Cleaner(words)
    assert not cleaner.faulty("They know whether their house is too small.")
    small, open_ended, unknown = "they know.", "They know", "They knwo."
    name, blanks, asked, rule = "They know ann.", "They  know.", "Do they know.", "They is small."
    for text in (small, open_ended, unknown, name, blanks, asked, rule):
        assert cleaner.faulty(text), text


def test_names_and_numbers_are_exchanged() -> None:
    draw = Random(0)
    made = other_names("Please meet them, Ann Smith, at 5 pm.", NAMES, draw, share=1)
    assert made.startswith("Please meet them, ")
    assert "Ann Smith" not in made
    assert other_numbers("1 of them", draw) == "1 of them"
    assert other_numbers("300 of them", draw) != "300 of them"
    numbers = NUMBER.finditer("$5.00 on the 3rd at 3:30, 408-735-7448, 7.5 and 12")
    kinds = ["money", "ordinal", "time", "phone", "decimal", "number"]
    assert [found.lastgroup for found in numbers] == kinds


def test_every_pattern_is_filled() -> None:
    filler = Filler(NAMES, {kind: ["apple"] for kind in ("food", "thing", "animal", "plant")})
    for pattern in PATTERNS:
        text = filler.fill(pattern, Random(1))
        assert not set("{}[]|") & set(text), text
        assert " a apple" not in text


def test_loss_is_of_answers_only() -> None:
    ids = np.array([START, 7, 8, END, 9, END, START, 7, END, 8, 9, END], dtype=np.uint16)
    data = Encoded(ids, np.array([0, 6, 12]), np.array([4, 3])).data()
    assert (data.roles > 0).tolist() == [False] * 4 + [True] * 2 + [False] * 3 + [True] * 3
    assert len(data) == 2


def test_judge_counts_corrections_and_changes() -> None:
    case = {"prompt": "I saw teh red dog .", "answer": "I saw the red dog."}
    assert changed(case["prompt"].split(" "), case["answer"].split(" ")) == {2, 4}
    right, other = Count(), Count()
    right.add(case, case["answer"])
    assert (right.whole, right.mended, right.spoiled) == (1, 1, 0)
    other.add(case, "I saw the blue dog.")
    assert (other.whole, other.mended, other.spoiled, other.words) == (0, 1, 1, 3)
