"""The examples of `proofread`: right texts, and the mistakes in their prompts."""

from __future__ import annotations

from random import Random

import pytest

from hamburger_edge.models.zoo.proofread.making.generate import (
    CLEAN,
    COMMON,
    MisspellingVocabulary,
    vocabulary_of,
    with_mistakes,
    with_other_names,
)

TEXT = "Yesterday Dexter paid $55 to Ann O'Hara because the ukulele didn't work."
COMMON_WORDS = "yesterday paid to because the did didn't work whether weather their"


@pytest.fixture(scope="module")
def vocabulary() -> MisspellingVocabulary:
    return vocabulary_of([*[COMMON_WORDS] * COMMON, "ukulele wrok"], ["becuase->because", "theri->their"])


def test_mistakes_spare_names_numbers_and_rare_words(vocabulary: MisspellingVocabulary) -> None:
    prompts = [with_mistakes(TEXT, vocabulary, Random(seed)) for seed in range(600)]
    assert abs(prompts.count(TEXT) / len(prompts) - CLEAN) < 0.1
    for word in ("Dexter", "$55", "Ann", "O'Hara", "ukulele"):
        assert all(word in prompt for prompt in prompts), word
    assert any("becuase" in prompt for prompt in prompts)
    assert any("didnt" in prompt for prompt in prompts)
    assert not any("wrok" in prompt for prompt in prompts)  # a word of the texts


def test_words_are_confused_only_beside_their_neighbours(vocabulary: MisspellingVocabulary) -> None:
    before_verb, elsewhere = (
        " ".join(with_mistakes(text, vocabulary, Random(seed)) for seed in range(200))
        for text in ("There is room.", "Put it there.")
    )
    assert "Their is" in before_verb
    assert "their" not in elsewhere


def test_names_and_numbers_inside_sentences_are_replaced() -> None:
    text = "Please meet them, Smith, at 5:30 with 300 books and 1 pen."
    replaced = {with_other_names(text, Random(seed)) for seed in range(50)}
    assert any("Smith" not in text and "300" not in text for text in replaced)
    for text in replaced:
        assert text.startswith("Please meet them, ")
        assert "at 5:30 with" in text
        assert text.endswith(" books and 1 pen.")
