"""Scores of calls for each tool."""

from __future__ import annotations

from hamburger_edge.evaluation.judges import Case, find_judge
from hamburger_edge.tuning.judging.tool_scores import ToolScore, show_tool_scores, tool_scores

ANSWERS = [  # expected, generated
    ("TurnOn area kitchen", "TurnOn area kitchen"),
    ("TurnOn area hall", "TurnOn area kitchen"),
    ("TurnOn name fan\nTurnOff name lamp", "TurnOn name fan\nTurnOn name lamp"),
    ("-", "-"),
    ("-", "TurnOff"),
]


def test_each_tool_has_its_right_functions_and_calls() -> None:
    learned = ["TurnOn area x"] * 30 + ["TurnOn\nTurnOff"] * 3 + ["-"] * 25
    assert tool_scores(["TurnOn", "TurnOff", "Dim"], ANSWERS, learned) == [
        ToolScore("TurnOn", 33, 3, 3, 2),
        ToolScore("TurnOff", 3, 1, 0, 0),
        ToolScore("Dim", 0, 0, 0, 0),
        ToolScore("no call", 25, 2, 1, 1),
    ]


def test_report_names_tools_with_too_few_examples() -> None:
    text = show_tool_scores([ToolScore("TurnOn", 33, 3, 3, 2), ToolScore("Dim", 4, 0, 0, 0)])
    assert "66.7%" in text
    assert "fewer than 20 examples: Dim (4): write more of these" in text


def test_judge_of_calls_gives_shares_of_right_functions_and_arguments() -> None:
    judgement = find_judge("calls")([Case("", expected, answer) for expected, answer in ANSWERS])
    assert judgement.scores == (1, 0, 0, 1, 0)
    assert judgement.figures == {"functions": 0.6, "arguments": 2 / 3}
