"""What is learned from, and what is kept apart to judge by."""

from __future__ import annotations

import json
from pathlib import Path

from toy_tasks import write_base

from hamburger_edge.models.training.data.batches import Split, side
from hamburger_edge.support.progress import no_progress
from hamburger_edge.tuning.dataset import Dataset
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
