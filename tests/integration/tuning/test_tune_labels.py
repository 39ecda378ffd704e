"""`tune` on examples whose answers are a few labels: no draft can be learned from them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.toys import toy_tuning
from helpers.toys.toy_tasks import write_base

from hamburger_edge import load
from hamburger_edge.cli.main import main
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.tuning.tune_recipe import TuneRecipe, write_tune_recipe

pytestmark = pytest.mark.slow

TUNED = replace(toy_tuning.TUNED, epochs=12.0)
LABELS = {"red": "fire blood rose", "blue": "sea sky rain", "green": "leaf grass moss"}


def write_labels(path: Path, count: int) -> str:
    rows = list[str]()
    for number in range(count):
        label = list(LABELS)[number % len(LABELS)]
        word = LABELS[label].split()[number // len(LABELS) % 3]
        rows.append(json.dumps({"prompt": f"{word} {number}", "answer": label}) + "\n")
    path.write_text("".join(rows))
    return str(path)


def test_model_of_a_few_labels_is_made_and_answers_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = TuneRecipe(
        base=str(write_base(tmp_path / "base")),
        examples=write_labels(tmp_path / "examples.jsonl", 300),
        share=0.1,
        precision="fp32",
        evaluation=EvaluationPlan(prompts=20, points=49.0, confidences=(0.0,)),
        tuning=replace(toy_tuning.PLAIN, stages=(TUNED,)),
    )
    write_tune_recipe(tmp_path / "recipe.toml", recipe)
    made = tmp_path / "made"
    assert main([*toy_tuning.COMMAND, "--recipe", str(tmp_path / "recipe.toml"), "-o", str(made)]) == 0
    assert "bag of words" in capsys.readouterr().out
    with load(tmp_path / "made.bundle", threads=1) as model:
        assert model.info.draft_index is None  # an empty one is not exported
        assert model.generate("rose 1", mode="verify").text == model.generate("rose 1", mode="plain").text
        assert model.generate("rose 1").text in LABELS
