"""Scores of a model's calls for each tool, and the tools that have too few examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hamburger_edge.calls.compact_form import CALLS, NO_CALL
from hamburger_edge.support.tables import table

ENOUGH = 20  # training examples of a tool
NOTHING = "no call"


@dataclass(frozen=True)
class ToolScore:
    name: str  # of the tool, or NOTHING
    examples: int  # of the training that call it
    calls: int  # expected in the held-out examples
    functions: int  # of these with the right function
    right: int  # of these with the right arguments, too


def tool_scores(
    tools: Sequence[str], answers: Sequence[tuple[str, str]], learned: Sequence[str]
) -> list[ToolScore]:
    """Return one score per tool, and one of the prompts without a call.

    `answers` are pairs of expected and generated text. The n-th call is compared with the n-th.
    """
    examples = Counter(name for text in learned for name in {_name(call) for call in text.split(CALLS)})
    calls, functions, right = Counter[str](), Counter[str](), Counter[str]()
    for expected, answer in answers:
        generated = answer.split(CALLS)
        for index, call in enumerate(expected.split(CALLS)):
            name, line = _name(call), generated[index] if index < len(generated) else ""
            calls[name] += 1
            functions[name] += _name(line) == name
            right[name] += line == call

    def score(name: str, shown: str) -> ToolScore:
        return ToolScore(shown, examples[name], calls[name], functions[name], right[name])

    return [*(score(tool, tool) for tool in tools), score(NO_CALL, NOTHING)]


def tool_table(scores: Sequence[ToolScore]) -> list[list[str]]:
    rows = [["tool", "examples", "held out", "right function", "right arguments", "right call"]]
    for score in scores:
        arguments = _share(score.right, score.functions) if score.name != NOTHING else ""
        shares = _share(score.functions, score.calls), arguments, _share(score.right, score.calls)
        rows.append([score.name, str(score.examples), str(score.calls), *shares])
    return rows


def show_tool_scores(scores: Sequence[ToolScore]) -> str:
    """Format the scores for a terminal, and name the tools with fewer than ENOUGH examples."""
    few = [f"{score.name} ({score.examples})" for score in scores if score.examples < ENOUGH]
    note = f"\nfewer than {ENOUGH} examples: {', '.join(few)}: write more of these" if few else ""
    return table(tool_table(scores)) + note


def _name(call: str) -> str:
    return call.split(" ", 1)[0]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else ""
