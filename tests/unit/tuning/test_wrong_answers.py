"""The wrong answers of a run, and the advice that follows from its scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hamburger_edge.evaluation.judges import Case, distance
from hamburger_edge.tuning.judging.baselines import Baseline
from hamburger_edge.tuning.results.wrong_answers import (
    RecordingJudge,
    WrongAnswer,
    next_step,
    show_wrong,
    write_wrong,
)

PLAIN = Baseline("the model, plain", 0.8)
WRONG = [WrongAnswer(f"ask {number}", "yes", "no", 0.0) for number in range(12)]


def test_judge_records_the_first_answer_to_each_request_and_sorts_the_worst_first(tmp_path: Path) -> None:
    judge = RecordingJudge(distance)
    requests = [("a", "right"), ("b", "right"), ("c", "right")]
    plain = [
        Case(*request, answer) for request, answer in zip(requests, ["rigth", "right", "no"], strict=True)
    ]
    merged = [Case(*request, "other") for request in requests]
    assert judge(plain) == distance(plain)
    judge(merged)
    assert [(row.prompt, row.answer) for row in judge.wrong] == [("c", "no"), ("a", "rigth")]
    write_wrong(tmp_path / "wrong.jsonl", judge.wrong)
    rows = [json.loads(line) for line in (tmp_path / "wrong.jsonl").read_text().splitlines()]
    assert rows[0] == {"prompt": "c", "expected": "right", "answer": "no", "score": 0.0}


def test_terminal_shows_ten_wrong_answers_on_one_line_each() -> None:
    lines = show_wrong([WrongAnswer("two\nlines " * 20, "yes", "no", 0.0), *WRONG], 50).splitlines()
    assert lines[0] == "wrong answers: 13 of 50, the first 10"
    assert "two lines" in lines[2] or "two lines" in lines[3]
    assert "ask 8" in lines[-1]
    assert show_wrong([], 50) == "wrong answers: none of 50"


@pytest.mark.parametrize(
    ("baseline", "wrong", "epochs", "advice"),
    [
        (0.96, WRONG, 0.5, "next: rules would do: nearest example alone scores 96.0"),
        (0.5, [], 0.5, "next: nothing: every held-out answer is right"),
        (0.5, WRONG, 0.5, "next: more --minutes and another --work: the base saw each example 0.5 times"),
        (0.5, WRONG, 2.0, "next: more examples like the 12 wrong ones: plain decoding scores 80.0%"),
        (0.5, WRONG, None, "next: more examples like the 12 wrong ones"),
    ],
)
def test_advice_follows_from_baselines_wrong_answers_and_epochs(
    baseline: float, wrong: list[WrongAnswer], epochs: float | None, advice: str
) -> None:
    baselines = [Baseline("most frequent", 0.1), Baseline("nearest example", baseline)]
    assert next_step(PLAIN, baselines, wrong, epochs).startswith(advice)
