from __future__ import annotations

import pytest

from hamburger_edge.tasks.proofreading.filters import clean, fault, pieces
from hamburger_edge.tasks.proofreading.openers import QUESTIONS, openers_for
from hamburger_edge.tasks.proofreading.sentences import CLEAN_TOKEN, HELD_OUT, Line
from hamburger_edge.tasks.proofreading.text_kinds import KINDS
from hamburger_edge.tasks.proofreading.topics import TOPICS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.what)
def test_what_is_shown_to_the_base_is_clean(kind: object) -> None:
    assert isinstance(kind, type(KINDS[0]))
    assert len(kind.examples) == 3
    for _, answer in kind.examples:
        assert len(answer.split("\n")) == 3
        for line in answer.split("\n"):
            for piece in pieces(line):
                assert fault(piece) in (None, "length"), piece


def test_topics_are_many_and_none_comes_twice() -> None:
    assert len(TOPICS) == len(set(TOPICS)) > 400
    assert len(TOPICS[HELD_OUT - 1 :: HELD_OUT]) > 40


def test_questions_begin_as_questions() -> None:
    assert openers_for("questions that people ask each other") == QUESTIONS
    assert "Why do" not in openers_for("lines of a diary")


@pytest.mark.parametrize("token", [" the", "The", " I", "'s", "'ll", ".", ",", "\n", " TV", "7", " $"])
def test_tokens_of_clean_text_can_be_chosen(token: str) -> None:
    assert CLEAN_TOKEN.fullmatch(token)


@pytest.mark.parametrize("token", ["[", " (", '"', "**", "\n\n", " getElement", "é", "’", " HTTP", "#", "  "])
def test_others_cannot(token: str) -> None:
    assert not CLEAN_TOKEN.fullmatch(token)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Come here.", "length"),
        ("the bus was late again today.", "form"),
        ("The bus was late again today", "form"),
        ("The bus was late ,again today.", "form"),
        ("The bus was lateAgain this morning.", "form"),
        ("As an AI I like the bus.", "unfit words"),
        ("Here is a message about the bus.", "unfit words"),
        ("The bus was late and the bus was late.", "repetition"),
        ("The bus was was late today.", "repetition"),
        ("The best lake in the whole town.", "no verb"),
        ("Its a nice day at the lake.", "grammar: its for it's"),
        ("The dog lost it's own ball.", "grammar: it's for its"),
        ("Your welcome to stay with us.", "grammar: your for you're"),
        ("I like you're house at the lake.", "grammar: you're for your"),
        ("I think their going to the lake.", "grammar: their for they're"),
        ("It was bigger then the old one.", "grammar: then for than"),
        ("You could of told me that.", "grammar: of for have"),
        ("It's to late for the bus.", "grammar: to for too"),
        ("She bought a apple at the market.", "grammar: a before a vowel"),
        ("They was at the lake yesterday.", "grammar: singular verb"),
        ("He have two dogs at home.", "grammar: plural verb"),
        ("I can goes with you tomorrow.", "grammar: form after a modal"),
        ("The bus is late, I'll walk home.", "grammar: comma splice"),
        ("I like the lake but it is cold.", "grammar: comma missing before but"),
        ("What is your favorite lake.", "grammar: question without a mark"),
        ("We waited for five hour there.", "grammar: amount without plural"),
    ],
)
def test_faults_are_found(text: str, why: str) -> None:
    assert fault(text) == why


@pytest.mark.parametrize(
    "text",
    [
        "It's not their fault that the bus is late.",
        "When the bus came, they were already there.",
        "An hour is too long, but a one-way ticket is cheap.",
        "Dr. Lee is here. Do you have time at 10:30?",
        "There are a lot of people on the bus today.",
    ],
)
def test_right_texts_pass(text: str) -> None:
    assert fault(text) is None


def test_a_line_of_three_sentences_becomes_two_texts() -> None:
    texts = ["It rains. Mr. Lee stays here!", "Do you?"]
    assert list(pieces(" ".join(texts))) == texts


def line(text: str, topic: int = 0, mean: float = -1.0, lowest: float = -2.0) -> Line:
    return Line(0, topic, text, mean, lowest)


def test_the_corpus_tells_what_a_text_alone_does_not() -> None:
    usual = [
        line("The dog sleeps on the warm bed."),
        line("Our dog likes the warm bed in Paris."),
        line("His dog has a bed in Paris, and it is warm."),
        line("We sleep in a bed and our dog likes Paris.", topic=HELD_OUT - 1),
    ]
    known = frozenset(["we", "his", "has", "it", "is", "and", "a", "sleep", "sleeps", "on", "likes", "in"])
    kept, left_out = clean(
        [
            *usual,
            line("The dog sleeps on the warm bed!"),  # said before
            line("The dog glorps on the warm bed in Paris."),  # what word is that?
            line("The dog is on the Warm bed."),
            line("Our dog is in the warm bed.", lowest=-9.0),  # the base was surprised itself
        ],
        known | {"the", "our"},
    )
    assert [text.text for text in kept] == [u.text for u in usual]
    assert [text.held_out for text in kept] == [False, False, False, True]
    assert left_out == {"near duplicate": 1, "unknown word": 1, "capitals": 1, "unsure": 1}
