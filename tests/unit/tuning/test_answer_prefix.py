"""What all answers begin with, as the examples have it."""

from __future__ import annotations

import pytest
from training_data_files import DataFiles

from hamburger_edge.loop.backend import LONGEST_ANSWER_PREFIX
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.tuning.dataset import common_answer_prefix

ASKED = ANSWER + 1  # any other role


def data(*conversations: tuple[list[int], list[int]]) -> DistilledData:
    """Of questions and answers."""
    roles = [[ASKED] * len(question) + [ANSWER] * len(answer) for question, answer in conversations]
    ids = [[*question, *answer] for question, answer in conversations]
    return DataFiles.in_memory(roles=roles, ids=ids, entropies=[[0.0] * len(each) for each in ids])


def answer_prefix(*answers: list[int]) -> list[int]:
    found = data(*(([90, number], answer) for number, answer in enumerate(answers)))
    return common_answer_prefix(found, range(len(found)))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([[5, 6, 7, 8], [5, 6, 9, 8, 8]], [5, 6]),
        ([[5, 6, 7], [4, 6, 7]], []),
        ([[5, 6, 7, 2], [5, 6, 7, 2]], [5, 6, 7]),  # an answer's end is no beginning
        ([[5], [5]], []),
        ([[*range(80)], [*range(80)]], [*range(LONGEST_ANSWER_PREFIX)]),
        ([[5, 6, 7]] * 1999 + [[8, 9]], [5, 6]),  # one in two thousand may be a mistake
        ([[5, 6, 7]] * 500 + [[8, 9]], []),
    ],
)
def test_it_is_what_all_answers_begin_with(answers: list[list[int]], expected: list[int]) -> None:
    assert answer_prefix(*answers) == expected


def test_only_the_given_conversations_count() -> None:
    found = data(([90], [5, 6, 7]), ([91], [5, 6, 8]), ([92], [4, 4, 4]))
    assert common_answer_prefix(found, [0, 1]) == [5, 6]
    assert common_answer_prefix(found, []) == []
