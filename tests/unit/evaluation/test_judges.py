"""Scores of answers against the expected ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.judges import (
    Case,
    Validator,
    equal,
    find_judge,
    fitting_judge,
    judge_files,
)


def cases(*pairs: tuple[str, str]) -> list[Case]:
    return [Case("asked", expected, answer) for expected, answer in pairs]


@pytest.mark.parametrize(
    ("answer", "expected", "found"),
    [
        ('{"a": 1, "b": [true, null]}', '{"b": [true, null], "a": 1.0}', True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": 1', '{"a": 1}', False),
        (" Paris.\n", "Paris.", True),
        ("paris.", "Paris.", False),
        ("42 of them", "42", False),
    ],
)
def test_right_answers_are_equal_as_json_or_else_as_text(answer: str, expected: str, found: bool) -> None:
    assert equal(answer, expected) is found


def test_valid_answers_are_those_of_the_schema() -> None:
    pytest.importorskip("jsonschema")
    validator = Validator('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    assert validator.accepts('{"n": 7}')
    assert not any(map(validator.accepts, ('{"n": "7"}', '{"n": 7', "", "[" * 100_000)))
    with pytest.raises(InputError, match="'thing' is not valid"):
        Validator('{"type": "thing"}')


def test_exact() -> None:
    judged = find_judge("exact")(cases(("a b", " a b\n"), ("a b", "a  b")))
    assert judged.scores == (1, 0)
    assert judged.score == 0.5


def test_distance() -> None:
    pairs = cases(("kitten", "sitting"), ("sitting", "kitten"), ("same", "same"), ("", "abc"), ("", ""))
    judged = find_judge("distance")(pairs)
    assert judged.scores == pytest.approx((4 / 7, 4 / 7, 1, 0, 1))
    assert judged.figures == {"exact": 0.4}


def test_fields_are_paths_and_what_stands_there() -> None:
    expected = json.dumps({"intent": "play", "slots": {"artist": "x", "years": [1, 2]}, "more": {}})
    other_order = json.dumps(
        {"more": {}, "slots": {"years": [1.0, 2], "artist": "x"}, "intent": "play"}, indent=1
    )
    half = json.dumps({"intent": "play", "slots": {"artist": "y", "years": [2, True]}, "more": []})
    judged = find_judge("fields")(cases((expected, other_order), (expected, half), (expected, "{")))
    assert judged.scores == (1, 0, 0)
    assert judged.figures == {
        "valid": pytest.approx(2 / 3),
        "field_precision": pytest.approx(7 / 10),  # said: 5 + 5 fields, 7 of them wanted
        "field_recall": pytest.approx(7 / 15),  # wanted: 3 times 5
        "field_f1": pytest.approx(14 / 25),
    }


@pytest.mark.parametrize("python", ["python", sys.executable])
def test_a_command_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    """`python` is the one that runs this, whatever a shell would find."""
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "judge.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    case = json.loads(line)\n"
        "    print(0.25 if case['prompt'] == 'asked' and case['answer'] == 'é' else 1)\n"
    )
    judge = find_judge(f"{python} {program}")
    assert judge(cases(("a", "é"), ("a", "b"))).scores == (0.25, 1)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit('no idea')", "status 1: no idea"),
        ("print(1)", "1 numbers for 2 lines"),
        ("print(1, 2)", "'2': a number from 0 to 1"),
        ("print(1, 'nan')", "'nan': a number from 0 to 1"),
        ("import sys; sys.stdout.buffer.write(b'\\xff 1')", "not UTF-8"),
    ],
)
def test_a_command_that_does_not(tmp_path: Path, code: str, message: str) -> None:
    program = tmp_path / "judge.py"
    program.write_text(code)
    with pytest.raises(InputError, match=message):
        find_judge(f"{sys.executable} {program}")(cases(("a", "b"), ("a", "b")))


def test_a_command_is_known_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "judge.py"
    program.write_text("pass\n")
    monkeypatch.chdir(tmp_path)
    ways = (f"python {program}", "python judge.py --strict", "python -m judge")
    before = [judge_files(each) for each in ways]
    assert all(len(files) == 1 for files in before)
    program.write_text("print(1)\n")
    assert not any(files == judge_files(each) for files, each in zip(before, ways, strict=True))
    assert judge_files("exact") == judge_files("python -m no_such_module") == []


def test_which_judge_there_is_and_which_fits() -> None:
    with pytest.raises(InputError, match="'bleu' is unknown: take exact, fields, distance"):
        find_judge("bleu")
    with pytest.raises(InputError, match="cannot be run"):
        find_judge("/no/such/program x")(cases(("a", "b")))
    assert fitting_judge(['{"a": 1}', "{}"]) == "fields"
    assert fitting_judge(['{"a": 1}', "5"]) == fitting_judge([]) == "exact"
