"""The kept set of checkable questions, and what its checks let pass."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import Prompt, read_prompts
from hamburger_edge.evaluation.recommending import CHECKABLE, checkable_questions


@pytest.fixture(scope="module")
def questions() -> list[Prompt]:
    return checkable_questions(None, 1.0)


def test_four_kinds_all_checkable_none_twice(questions: list[Prompt]) -> None:
    assert len(questions) == len(read_prompts(CHECKABLE)) == len({each.text for each in questions}) == 1000
    kinds = Counter(each.kind for each in questions)
    assert kinds == {"arithmetic": 250, "format": 250, "extraction": 250, "list": 250}
    assert Counter(each.kind for each in questions[:40]) == dict.fromkeys(kinds, 10)


@pytest.mark.parametrize(
    ("beginning", "wrong"),
    [
        ("Count from", "1, 2, 4"),
        ("Name the four days", "Monday and Sunday"),
        ("Write these words as a numbered list", "- one\n- two"),
    ],
)
def test_lists_may_be_written_in_any_way(beginning: str, wrong: str, questions: list[Prompt]) -> None:
    """In a line, with an "and", on lines of their own with numbers or signs."""
    for question in (each for each in questions if each.text.startswith(beginning)):
        items = _items(question)
        assert question.check.passes(f"Sure: {', '.join(items)}.")
        assert question.check.passes("\n".join(f"* {item}" for item in items))
        if not beginning.startswith("Write"):
            assert question.check.passes(f"{', '.join(items[:-1])} and {items[-1]}")
            assert question.check.passes("\n".join(f"{n}. {item}" for n, item in enumerate(items, 1)))
        assert not question.check.passes(", ".join(reversed(items)))
        assert not question.check.passes(wrong)


def _items(question: Prompt) -> list[str]:
    pattern = str(question.check.value).removeprefix(r"(?is)\b").removesuffix(r"\b")
    return pattern.split(r"\b\W+(?:(?:and|\d+)\W+)?\b")


def test_too_few_checks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text('{"prompt": "What is 1 plus 1?", "check": {"type": "number", "value": 2}}\n' * 3)
    with pytest.raises(InputError, match="3 prompts have a check, 558 are needed"):
        checkable_questions(path, 1.0)
