"""Prompt files and checkable answers: every type, and everything that can be wrong with a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import Check, parse_check, parse_prompt, read_prompts


@pytest.mark.parametrize(
    ("check", "answer", "passes"),
    [
        (Check("exact", "71"), " 71\n", True),
        (Check("exact", "71"), "71.", False),
        (Check("exact", "Oslo"), "oslo", False),
        (Check("contains", "Oslo"), "It is OSLO, I think.", True),
        (Check("contains", "Oslo"), "It is Bergen.", False),
        (Check("regex", r"(?s)def \w+\(.*return"), "def f(x):\n    return x", True),
        (Check("regex", r"^\d+$"), "12 apples", False),
        (Check("number", 15.0), "7 plus 8 is 15. So the answer is 15.", True),
        (Check("number", 15.0), "It is 15, not 16.", False),  # the last one counts
        (Check("number", 1234.5), "That makes 1,234.50 euros.", True),
        (Check("number", -3.0), "The result is -3.", True),
        (Check("number", -3.0), "The result is −3", True),
        (Check("number", -4.0), "(-4)", True),
        (Check("number", 3.0), "5-3", True),  # a dash between numbers is no sign
        (Check("number", 0.1), "0.1", True),
        (Check("number", 15.0), "I do not know.", False),
    ],
)
def test_checks(check: Check, answer: str, passes: bool) -> None:
    assert check.passes(answer) is passes


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('"prompt": " "', "prompt must be a text"),
        ('"kind": 1', "kind must be a word"),
        ('"kind": "\\ud800"', "not valid UTF-8"),
        ('"check": {"type": "near", "value": 1}', "must be one of exact, number"),
        ('"check": {"type": "exact"}', "value must be a text"),
        ('"check": {"type": "exact", "value": ""}', "value must be a text"),
        ('"check": {"type": "number", "value": "15"}', "value must be a number"),
        ('"check": {"type": "number", "value": NaN}', "value must be a number"),
        ('"check": {"type": "number", "value": 1' + 400 * "0" + "}", "value must be a number"),
        ('"check": {"type": "regex", "value": "("}', "not a regular expression"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(line: str, told: str) -> None:
    prompt = "" if line.startswith('"prompt"') else '"prompt": "a", '
    with pytest.raises(InputError, match=told) as error:
        parse_prompt(f"{{{prompt}{line}}}", "file, line 3")
    assert str(error.value).startswith("file, line 3: ")
    assert "\n" not in str(error.value)


def test_files(tmp_path: Path) -> None:
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
    plain, checked = read_prompts(path)
    assert (plain.text, plain.kind, plain.check) == ("a", "other", None)
    assert (checked.kind, checked.check) == ("sum", parse_check(check, ""))


def test_the_built_in_set() -> None:
    prompts = read_prompts()
    assert len(prompts) == 64
    assert len({prompt.text for prompt in prompts}) == 64
    kinds = {prompt.kind for prompt in prompts}
    assert kinds == {"chat", "list", "code", "json", "arithmetic", "summary", "translation", "long"}
    checked = [prompt for prompt in prompts if prompt.check]
    assert len(checked) >= 30
    assert not any(prompt.check.passes("") for prompt in checked if prompt.check)
