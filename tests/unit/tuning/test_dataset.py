"""What is learned from, and what is kept apart to judge by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_tasks import write_base
from training_data_files import DataFiles

from hamburger_edge.loop.backend import LONGEST_ANSWER_PREFIX
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import Split, side
from hamburger_edge.support.progress import no_progress
from hamburger_edge.tuning.dataset import Dataset, common_answer_prefix
from hamburger_edge.tuning.examples import Turn
from hamburger_edge.tuning.tune_recipe import TuneRecipe

CALLS = [
    Turn(f"call {name} about {topic}", json.dumps({"who": name, "what": topic}))
    for number, name in enumerate(f"{a}{b}" for a in ("Ann", "Bo", "Cy", "Di") for b in ("ber", "lin", "mar"))
    for topic in (f"work {number}", f"rent {number}")
]


def write(path: Path, turns: list[Turn]) -> str:
    lines = (json.dumps({"prompt": turn.prompt, "answer": turn.answer}) + "\n" for turn in turns)
    path.write_text("".join(lines))
    return str(path)


def dataset(tmp_path: Path, *, judged: list[Turn] | None = None) -> Dataset:
    """A file of examples, and one of these turns that are held out."""
    recipe = TuneRecipe(
        base=str(write_base(tmp_path / "base")),
        examples=write(tmp_path / "examples.jsonl", CALLS),
        held_out="" if judged is None else write(tmp_path / "held_out.jsonl", judged),
        augment=20,
    )
    return Dataset(recipe, print, no_progress)


def test_no_example_by_augmenting_asks_what_a_file_judges(tmp_path: Path) -> None:
    """They were compared with the split's held-out prompts alone, so that judged prompts entered training."""
    alone = dataset(tmp_path)
    sides = [side(alone.encoder.question(one), alone.recipe.share) for one in alone.examples.examples]
    split = Split([number for number, each in enumerate(sides) if each == "train"], [], [])
    made = alone.more_by_augmenting(split)
    half = len(made) // 2
    assert half > 10
    beside = dataset(tmp_path, judged=[one.turns[0] for one in made[:half]])
    assert beside.more_by_augmenting(split) == made[half:]


def test_held_out_prompts_come_in_random_order(tmp_path: Path) -> None:
    """In a file that took turns among three sources, every third prompt was of one kind: 88% of these were
    right, 68% of all."""
    held_out = [Turn(f"{turn.prompt} {copy}", turn.answer) for copy in range(3) for turn in CALLS]
    found = dataset(tmp_path, judged=held_out)
    asked = [request.prompt for request in found.requests(Split([], [], []))]
    assert sorted(asked) == sorted(turn.prompt for turn in held_out)
    assert asked == [request.prompt for request in found.requests(Split([], [], []))]
    work = ["about work" in prompt for prompt in asked]  # every second one in the file
    assert 0.3 < sum(work[::2]) / len(work[::2]) < 0.7


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([[5, 6, 7, 8], [5, 6, 9, 8, 8]], [5, 6]),
        ([[5, 6, 7], [4, 6, 7]], []),
        ([[5, 6, 7, 2], [5, 6, 7, 2]], [5, 6, 7]),  # an answer's end is no beginning
        ([[5], [5]], []),
        ([], []),
        ([[*range(80)], [*range(80)]], [*range(LONGEST_ANSWER_PREFIX)]),
        ([[5, 6, 7]] * 1999 + [[8, 9]], [5, 6]),  # one in two thousand may be a mistake
        ([[5, 6, 7]] * 500 + [[8, 9]], []),
    ],
)
def test_the_answer_prefix_is_what_the_given_answers_begin_with(
    answers: list[list[int]], expected: list[int]
) -> None:
    every = [*answers, [4, 4, 4]]  # the last is not among the given ones
    ids = [[90, number, *answer] for number, answer in enumerate(every)]
    roles = [[ANSWER + 1] * 2 + [ANSWER] * len(answer) for answer in every]  # of the question: any other
    found = DataFiles.in_memory(roles=roles, ids=ids, entropies=[[0.0] * len(each) for each in ids])
    assert common_answer_prefix(found, range(len(answers))) == expected
