"""What is learned from, and what is kept apart to judge by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_tasks import write_base
from training_data_files import DataFiles

from hamburger_edge.loop.backend import LONGEST_ANSWER_PREFIX
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData, Split, side
from hamburger_edge.support.progress import no_progress
from hamburger_edge.tuning.dataset import Dataset, common_answer_prefix
from hamburger_edge.tuning.tune_recipe import TuneRecipe

NAMES = [f"{first}{last}" for first in ("Ann", "Bo", "Cy", "Di") for last in ("ber", "lin", "mar")]


def write(path: Path, names: list[str]) -> Path:
    lines = (
        {"prompt": f"call {name} about {topic}", "answer": json.dumps({"who": name, "what": topic})}
        for number, name in enumerate(names)
        for topic in (f"work {number}", f"rent {number}")
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_no_example_by_augmenting_asks_what_a_file_judges(tmp_path: Path) -> None:
    """They were compared with the split's held-out prompts alone, so that judged prompts entered training."""
    examples, base = write(tmp_path / "examples.jsonl", NAMES), write_base(tmp_path / "base")
    recipe = TuneRecipe(base=str(base), examples=str(examples), augment=20)
    dataset = Dataset(recipe, print, no_progress)
    number = len(dataset.examples.examples)
    sides = [side(dataset.encoder.question(one), recipe.share) for one in dataset.examples.examples]
    train = [i for i in range(number) if sides[i] == "train"]
    split = Split(train, [], [])
    made = dataset.more_by_augmenting(split)
    judged = made[: len(made) // 2]
    held_out = tmp_path / "held_out.jsonl"
    turns = [one.turns[0] for one in judged]
    held_out.write_text("".join(json.dumps({"prompt": t.prompt, "answer": t.answer}) + "\n" for t in turns))
    beside = Dataset(TuneRecipe(**{**vars(recipe), "held_out": str(held_out)}), print, no_progress)
    assert len(judged) > 10
    assert beside.more_by_augmenting(split) == made[len(judged) :]


def test_held_out_prompts_come_in_random_order(tmp_path: Path) -> None:
    """In a file that took turns among three sources, every third prompt was of one kind: 88% of these were
    right, 68% of all."""
    held_out, base = write(tmp_path / "held_out.jsonl", NAMES * 3), write_base(tmp_path / "base")
    recipe = TuneRecipe(base=str(base), examples=str(held_out), held_out=str(held_out))
    dataset = Dataset(recipe, print, no_progress)
    asked = [request.prompt for request in dataset.requests(Split([], [], []))]
    assert sorted(asked) == sorted(one.turns[0].prompt for one in dataset.judged.examples)
    assert asked == [request.prompt for request in dataset.requests(Split([], [], []))]
    work = ["about work" in prompt for prompt in asked]  # every second one in the file
    assert 0.3 < sum(work[::2]) / len(work[::2]) < 0.7


# What all answers begin with

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
def test_the_answer_prefix_is_what_all_answers_begin_with(
    answers: list[list[int]], expected: list[int]
) -> None:
    assert answer_prefix(*answers) == expected


def test_only_the_given_conversations_count() -> None:
    found = data(([90], [5, 6, 7]), ([91], [5, 6, 8]), ([92], [4, 4, 4]))
    assert common_answer_prefix(found, [0, 1]) == [5, 6]
    assert common_answer_prefix(found, []) == []
