"""Answers that need no model."""

from __future__ import annotations

import json
import random

import pytest
from helpers.measured_rows import row

from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.judges import find_judge
from hamburger_edge.loop.dial import PLAIN
from hamburger_edge.tuning.data.examples import Example, Turn
from hamburger_edge.tuning.judging.bag_of_words import are_classes, classified
from hamburger_edge.tuning.judging.baselines import (
    Baseline,
    baselines,
    comparison,
    frequent_fields,
    nearest,
    plain_score,
    unbeaten,
)

PROMPTS = ["play some jazz", "play some blues", "book a table in Rome", "what is the weather in Rome"]
ANSWERS = ["jazz", "blues", "table", "weather"]


def test_the_nearest_example_shares_the_rare_words() -> None:
    """`in Rome` is in two prompts, `weather` in one."""
    asked = ["the weather please", "some BLUES!", "nothing alike"]
    assert nearest(PROMPTS, ANSWERS, asked)[:2] == ["weather", "blues"]
    assert nearest(PROMPTS, ["x", "y", "y", "z"], asked)[2] == "y"  # no word alike: the most frequent


def test_bag_of_words_weighs_all_words_of_a_prompt() -> None:
    """Each class has a unique word among words without information."""
    draw = random.Random(0)
    named = {"play": "music", "book": "table", "rain": "weather"}
    prompts, classes = [], []
    for number in range(60):
        word = list(named)[number % 3]
        words = [word, *draw.sample(["the", "now", "please", "some", "today"], 3)]
        prompts.append(" ".join(draw.sample(words, 4)))
        classes.append(named[word])
    assert classified(prompts, classes, ["now PLAY the", "rain today?", "some book"]) == [
        "music",
        "weather",
        "table",
    ]
    assert classified(prompts, classes, ["unknown words"])[0] in named.values()


def test_answers_that_repeat_are_classes() -> None:
    assert are_classes(["a", "b"] * 5)
    assert not are_classes(["a"] * 10)
    assert not are_classes([str(number // 2) for number in range(10)])


def test_fields_that_most_answers_have_take_their_most_frequent_value() -> None:
    records = [
        {"intent": "Play", "slots": {"artist": "A", "kind": "song"}},
        {"intent": "Play", "slots": {"artist": "B", "kind": "song"}},
        {"intent": "Book", "slots": {"kind": "table", "people": [2]}},
    ]
    made = frequent_fields([json.dumps(record) for record in records])
    assert json.loads(made) == {"intent": "Play", "slots": {"artist": "A", "kind": "song"}}
    assert frequent_fields(["no object", "{}"]) is None
    assert frequent_fields(["[1]"]) is None


def test_baselines_are_judged_as_answers_are() -> None:
    pairs = [(prompt, json.dumps({"what": answer})) for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)]
    examples = [Example((Turn(*pair),)) for pair in pairs]
    requests = [Request((1,), *pair) for pair in pairs]
    found = {one.name: one for one in baselines(examples, requests, find_judge("fields"))}
    assert list(found) == ["most frequent", "field by field", "nearest example"]
    assert found["most frequent"].score == 0.25
    assert found["nearest example"].score == found["nearest example"].figures["field_f1"] == 1.0


def test_a_model_that_beats_no_baseline_is_reported_with_a_remedy() -> None:
    plain, near = Baseline("the model, plain", 0.4), Baseline("nearest example", 0.45)
    found = [Baseline("most frequent", 0.1), near]
    assert "40.0 against 45.0 (nearest example); give more --minutes" in unbeaten(plain, found)
    assert unbeaten(plain, found[:1]) == ""
    assert unbeaten(plain, [plain])


def test_prompts_that_choose_and_prompts_that_confirm_count_together() -> None:
    rows = [
        row(PLAIN, score=score, figures={"valid": score / 2}, prompts=prompts)
        for score, prompts in ((0.5, 10), (0.2, 20))
    ]
    plain = plain_score(rows)
    assert (plain.score, plain.figures["valid"]) == pytest.approx((0.3, 0.15))
    table = comparison(plain, [Baseline("most frequent", 0.1, {"valid": 1.0})])
    assert table[1:] == [["most frequent", "10.0", "100.0"], ["the model, plain", "30.0", "15.0"]]
