"""More examples, by exchange of what answers copy from their prompts."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from hamburger_edge.tuning.augment import augmented
from hamburger_edge.tuning.examples import Example, Turn

NAMES = ["Ann", "Bo", "Cy Twombly", "Dé", "Eve O'Hara", "Flo"]
TOPICS = ["rent", "the wedding", "jazz", "a $5 bill", "C++", "work"]
CALL = "call {who} on the {where} about {topic}"


def example(prompt: str, answer: object, **style: bool) -> Example:
    return Example((Turn(prompt, answer if isinstance(answer, str) else json.dumps(answer, **style)),))


def calls(ascii_only: bool = False) -> list[Example]:
    """Six names and what is to be said to each, on two lines."""
    answers = [
        {"who": name, "where": where, "topic": topic, "n": number}
        for number, (name, topic) in enumerate(zip(NAMES, TOPICS, strict=True))
        for where in ("mobile", "landline")
    ]
    return [example(CALL.format(**answer), answer, ensure_ascii=ascii_only) for answer in answers]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_copied_texts_change_places(ascii_only: bool) -> None:
    made = augmented(calls(ascii_only), 20)
    assert len(made) > 20
    given = {one.turns[0].prompt for one in calls()}
    assert len({one.turns[0].prompt for one in made} | given) == len(made) + len(given)  # all are new
    for one in made:
        answer = json.loads(one.answer)
        assert one.turns[0].prompt == CALL.format(**answer)
        assert answer["who"] in NAMES
        assert answer["topic"] in TOPICS
        assert one.answer == json.dumps(answer, ensure_ascii=ascii_only)  # as the examples are written
    assert augmented(calls(ascii_only), 20) == made
    assert augmented(calls(ascii_only), 20, seed=1) != made


def test_where_few_texts_return_they_stay() -> None:
    """Which line it is decides more than whose name it is."""
    only = [one for one in calls() if "mobile" in one.answer]
    gil = {"who": "Gil", "where": "pager", "topic": "tea", "n": 9}
    rare = [example(CALL.format(**gil), gil)]
    for examples, places in ((only + rare, {"mobile", "pager"}), (only * 2 + rare, {"mobile"})):
        made = [json.loads(one.answer) for one in augmented(examples, 10)]
        assert {answer["where"] for answer in made if answer["n"] != 9} == places


@pytest.mark.parametrize(
    "odd",
    [
        example("say hi to Ann", "hi Ann"),  # no JSON
        example("call Ann, Ann", {"who": "Ann"}),  # stands there twice
        example("call Annabel", {"who": "Ann"}),  # within a word
        example("call Ann Bo", {"who": "Ann Bo", "first": "Ann"}),  # over one another
        example("call Ann", '{"who":"Ann"}'),  # written in a way of its own
        example("call Ann", '["Ann"]'),
        Example((Turn("call Ann", '{"who": "Ann"}'), Turn("now", "yes"))),
        Example((Turn("call Ann", '{"who": "Ann"}'),), system="be kind"),
    ],
)
def test_what_is_not_clear_is_left_as_it_is(odd: Example) -> None:
    assert all(" on the " in one.turns[0].prompt for one in augmented([odd, *calls()], 10))
    assert augmented([odd], 10) == []


def test_items_of_a_list_are_of_one_kind() -> None:
    asked = [example(f"{a} and {b}", {"who": [a, b]}) for a, b in pairwise(NAMES)]
    made = augmented(asked, 10)
    assert made
    for one in made:
        first, second = json.loads(one.answer)["who"]
        assert one.turns[0].prompt == f"{first} and {second}"
