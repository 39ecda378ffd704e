"""A recipe of `tune` that trains a toy base for seconds, and the files that it names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hamburger_edge.cli.main import main
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.models.training.data.batches import Cuts
from hamburger_edge.models.training.objective import LossWeights
from hamburger_edge.models.training.training_recipe import Recipe, Shape, Stage
from hamburger_edge.tuning.tune_recipe import TuneRecipe, write_tune_recipe
from helpers.toys.toy_tasks import write_base, write_examples

SHAPE = Shape(
    taps=(0,), micro_layers=1, merger_heads=4, merge_residual="last", max_group_tokens=8, initialise="random"
)
GRAFTED = Stage(
    name="graft",
    learns=("embedder", "base", "micro", "stop_head"),
    epochs=1.5,
    learning_rate=5e-3,
    base_learning_rate=3e-3,
    lora_rank=8,
    cuts=Cuts(entropy=0.4, random=0.3, low=(2.0,), ratio=(0.9,)),
    loss=LossWeights(features=0.5, micro_every=2),
)
TUNED = Stage(
    name="tuning",
    learns=("base",),
    epochs=2,
    learning_rate=1e-3,
    base_learning_rate=5e-3,
    lora_rank=8,
    loss=LossWeights(micro=0.0, hard=0.0),
)
READ = replace(
    TUNED,
    learns=("base", "embedder", "micro", "stop_head"),
    loss=LossWeights(),
    epochs=2,
    cuts=Cuts(entropy=0.0),
)
FAST: dict[str, Any] = {"row_slots": 128, "precision": "fp32", "judge_batches": 1}
GRAFT = Recipe(base="", data="", out="", shape=SHAPE, stages=(GRAFTED,), **FAST)
TUNING = replace(
    GRAFT,
    shape=replace(SHAPE, taps=(), max_group_tokens=2, merge_residual="mean"),
    stages=(TUNED,),
    patience=2,
    judge_every=20,
    calibrate=False,
)
PLAIN = replace(TUNING, shape=Shape(taps=(), max_group_tokens=1))
READING = replace(TUNING, shape=SHAPE, stages=(READ,))
COMMAND = ["tune", "--threads", "1"]


def write_sentences(path: Path) -> str:
    """Write off-topic prompts."""
    path.write_text("".join(json.dumps({"prompt": f"hello {number}"}) + "\n" for number in range(60)))
    return str(path)


def write_task(folder: Path) -> Path:
    """Write base, examples, held-out examples, off-topic sentences, and the recipe that names them."""
    recipe = TuneRecipe(
        base=str(write_base(folder / "base")),
        examples=str(write_examples(folder / "examples.jsonl", 500)),
        held_out=str(write_examples(folder / "held_out.jsonl", 120, seed=1)),
        precision="fp32",
        more_answers=20,
        off_topic=write_sentences(folder / "other.jsonl"),
        evaluation=EvaluationPlan(prompts=120, points=50.0, confidences=(0.0,)),
        tuning=TUNING,
        graft=GRAFT,
    )
    write_tune_recipe(folder / "recipe.toml", recipe)
    return folder


def failing(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return the errors of a `tune` that fails."""
    assert main([*COMMAND, *map(str, words)]) == 1
    return capsys.readouterr().err
