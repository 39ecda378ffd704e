from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamburger_edge.tasks.proofreading.scoring import align, score, spans_of_mistakes

TEXTS = st.lists(st.sampled_from(["a", "b", "cat", "dog.", ""]), min_size=1, max_size=9).map(" ".join)
RIGHT = "I think they're late again."
EXAMPLE = {
    "prompt": "i think their  late agian.",
    "answer": RIGHT,
    "mistakes": [
        {"kind": "lower_i", "index": 0, "count": 1},
        {"kind": "their_there", "index": 2, "count": 1},
        {"kind": "misspelling", "index": 4, "count": 1},
    ],
}


@pytest.mark.parametrize(
    ("answer", "put_right", "changed", "exact"),
    [
        (RIGHT, 3, 0, 1),
        ("I think they're late again", 2, 0, 0),
        ("i think their late agian.", 0, 0, 0),
        ("I think they're not late again.", 2, 0, 0),  # what was added touches a mistake
        ("I believe they're late again.", 3, 1, 0),
        ("I think they're", 2, 1, 0),
        ("", 0, 2, 0),
    ],
)
def test_answers_are_judged_along_the_right_text(
    answer: str, put_right: int, changed: int, exact: int
) -> None:
    scores = score([EXAMPLE], [answer])
    assert (scores.put_right, scores.changed, scores.exact) == (put_right, changed, exact)
    assert (scores.mistakes, scores.clean_words, scores.lines) == (3, 2, 1)


def test_kinds_are_counted_by_themselves() -> None:
    scores = score([EXAMPLE, EXAMPLE], [RIGHT, "I think their late agian."])
    assert scores.by_kind == {"lower_i": (2, 2), "their_there": (1, 2), "misspelling": (1, 2)}
    assert scores.share_put_right == pytest.approx(4 / 6)
    assert scores.facts()["by kind"]["their_there"] == {"put right": 1, "of": 2}


def test_a_word_that_is_still_doubled_is_not_put_right() -> None:
    example = {
        "prompt": "the the cat sat",
        "answer": "the cat sat",
        "mistakes": [{"kind": "doubled_word", "index": 0, "count": 1}],
    }
    scores = score([example, example], ["the the cat sat", "the cat sat"])
    assert scores.by_kind == {"doubled_word": (1, 2)}
    assert scores.changed == 0


def test_clean_text_is_worth_one_if_nothing_is_changed() -> None:
    clean = {"prompt": RIGHT, "answer": RIGHT, "mistakes": []}
    assert score([clean], [RIGHT]).worth == 1
    assert score([clean], ["I think they're late!"]).worth == 0
    assert score([clean], ["I do think they're late again."]).changed == 1


@given(TEXTS, TEXTS)
def test_an_alignment_accounts_for_every_word(right: str, other: str) -> None:
    words, others = right.split(" "), other.split(" ")
    alignment = align(words, others)
    lost = len(words) - len(alignment.matched)
    assert 0 <= len(others) - len(alignment.matched) - len(alignment.additions) <= lost
    assert all(0 <= at <= len(words) for at in alignment.additions)


@given(TEXTS, TEXTS)
def test_what_is_told_by_two_texts_is_put_right_by_the_right_one_only(wrong: str, right: str) -> None:
    example = {"prompt": wrong, "answer": right}
    assert score([example], [right]).worth == 1
    left = score([example], [wrong])
    assert left.put_right == 0
    assert left.changed == 0
    assert bool(spans_of_mistakes(wrong, right)) == (wrong != right)


def test_as_a_command_it_says_a_number_a_line() -> None:
    cases = [{"prompt": EXAMPLE["prompt"], "expected": RIGHT, "answer": answer} for answer in (RIGHT, "no")]
    module = "hamburger_edge.tasks.proofreading.scoring"
    told = subprocess.run(
        [sys.executable, "-m", module],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split() == ["1.0", "0.0"]
