"""Checkable answers, files of prompts with all that can be wrong with a line, and the built-in sets."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from helpers.places import ROOT

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import BUILT_IN, Check, Prompt, parse_check, parse_prompt, read_prompts
from hamburger_edge.evaluation.recommending import CHECKABLE, checkable_questions


@pytest.mark.parametrize(
    ("check", "answer", "passes"),
    [
        (Check("exact", "71"), " 71\n", True),
        (Check("exact", "Oslo"), "oslo", False),
        (Check("contains", "Oslo"), "It is OSLO, I think.", True),
        (Check("contains", "Oslo"), "It is Bergen.", False),
        (Check("regex", r"(?s)def \w+\(.*return"), "def f(x):\n    return x", True),
        (Check("regex", r"^\d+$"), "12 apples", False),
        (Check("number", 15.0), "It is 15, not 16.", False),  # the last one counts
        (Check("number", 1234.5), "That makes 1,234.50 euros.", True),
        (Check("number", -3.0), "The result is −3", True),
        (Check("number", -4.0), "(-4)", True),
        (Check("number", 3.0), "5-3", True),  # a dash between numbers is no sign
        (Check("number", 15.0), "I do not know.", False),
    ],
)
def test_check_passes_correct_answers_only(check: Check, answer: str, passes: bool) -> None:
    assert check.passes(answer) is passes


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('"prompt": " "', "prompt must be a text"),
        ('"prompt": "a", "kind": 1', "kind must be a word"),
        ('"prompt": "a", "kind": "\\ud800"', "not valid UTF-8"),
        ('"prompt": "a", "check": {"type": "near", "value": 1}', "must be one of exact, number"),
        ('"prompt": "a", "check": {"type": "exact"}', "value must be a text"),
        ('"prompt": "a", "check": {"type": "exact", "value": ""}', "value must be a text"),
        ('"prompt": "a", "check": {"type": "number", "value": "15"}', "value must be a number"),
        ('"prompt": "a", "check": {"type": "number", "value": NaN}', "value must be a number"),
        ('"prompt": "a", "check": {"type": "number", "value": 1' + 400 * "0" + "}", "value must be a number"),
        ('"prompt": "a", "check": {"type": "regex", "value": "("}', "not a regular expression"),
    ],
)
def test_wrong_line_error_names_file_and_line(line: str, told: str) -> None:
    with pytest.raises(InputError, match=f"^file, line 3: .*{told}.*$"):
        parse_prompt(f"{{{line}}}", "file, line 3")


def test_prompt_file_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    with pytest.raises(InputError, match="cannot be read"):
        read_prompts(path)
    path.write_text("\n\n")
    with pytest.raises(InputError, match="holds no prompts"):
        read_prompts(path)
    path.write_text('\n{"prompt": "a"}\n{"prompt": 1}\n')
    with pytest.raises(InputError, match="line 3: prompt"):
        read_prompts(path)
    check = {"type": "number", "value": 3}
    path.write_text('{"prompt": "a"}\n\n' + json.dumps({"prompt": "b", "kind": "sum", "check": check}))
    assert read_prompts(path) == [Prompt("a", "other"), Prompt("b", "sum", parse_check(check, ""))]


def test_recommendation_needs_enough_checks(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text('{"prompt": "What is 1 plus 1?", "check": {"type": "number", "value": 2}}\n' * 3)
    with pytest.raises(InputError, match="3 prompts have a check, 558 are needed"):
        checkable_questions(path, 1.0)


def test_built_in_sets_have_every_kind_and_no_repeated_prompt() -> None:
    prompts = read_prompts()
    assert len({prompt.text for prompt in prompts}) == len(prompts) == 64
    kinds = {"chat", "list", "code", "json", "arithmetic", "summary", "translation", "long"}
    assert {prompt.kind for prompt in prompts} == kinds
    checks = [prompt.check for prompt in prompts if prompt.check]
    assert len(checks) >= 30
    assert not any(check.passes("") for check in checks)
    questions = checkable_questions(None, 1.0)
    assert len({each.text for each in questions}) == len(read_prompts(CHECKABLE)) == 1000
    four = dict.fromkeys(("arithmetic", "format", "extraction", "list"), 250)
    assert Counter(each.kind for each in questions) == four
    assert set(Counter(each.kind for each in questions[:40]).values()) == {10}


@pytest.mark.parametrize("beginning", ["Count from", "Name the four days", "Write these words as a numbered"])
def test_list_check_accepts_each_notation(beginning: str) -> None:
    """One line or one line per entry; with "and" or with numbers, if the check does not require them."""
    for question in (each for each in read_prompts(CHECKABLE) if each.text.startswith(beginning)):
        assert question.check is not None
        passes, pattern = question.check.passes, str(question.check.value)
        words = pattern.removeprefix(r"(?is)\b").removesuffix(r"\b")
        items = words.split(r"\b\W+(?:(?:and|\d+)\W+)?\b")
        assert passes(f"Sure: {', '.join(items)}.")
        assert passes("\n".join(f"* {item}" for item in items))
        if not beginning.startswith("Write"):
            assert passes(f"{', '.join(items[:-1])} and {items[-1]}")
            assert passes("\n".join(f"{n}. {item}" for n, item in enumerate(items, 1)))
        assert not passes(", ".join(reversed(items)))
        assert not passes(", ".join(items[:-1]))


def test_no_question_that_judges_is_asked_for_training_or_for_an_index() -> None:
    asked = ROOT / "models/distillation/prompts.jsonl"
    learned = {json.loads(line)["prompt"].strip().lower() for line in asked.read_text().splitlines()}
    judging = {prompt.text.strip().lower() for path in (CHECKABLE, BUILT_IN) for prompt in read_prompts(path)}
    assert len(learned) > 5000
    assert len(judging) > 1000
    assert not learned & judging
