"""How long a training may be: a few steps of it, timed, say how many fit."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.training.batches import DistilledData
from hamburger_edge.models.training.recipe import Recipe
from hamburger_edge.models.training.runs import new_model
from hamburger_edge.models.training.trainer import Trainer

FEW, MORE = 1, 4  # steps


def epochs_within(minutes: float, recipe: Recipe, base: LoadedBase, data: DistilledData) -> float:
    """Of a recipe with one stage: as many as it says, or as fit."""
    [stage] = recipe.stages
    model = new_model(recipe, base, data)
    trainer = Trainer(recipe, model, data, lambda line: None)
    per_epoch = len(trainer.batches(trainer.split.train, stage.cuts, 0).plan(0))
    seconds = []
    for steps in (FEW, MORE):
        shutil.rmtree(recipe.out, ignore_errors=True)
        short = replace(stage, epochs=steps / per_epoch)
        probe = replace(recipe, stages=(short,), judge_batches=1, patience=0)
        begin = time.monotonic()
        Trainer(probe, model, data, lambda line: None).run()
        seconds.append(time.monotonic() - begin)
    shutil.rmtree(Path(recipe.out))
    step = max((seconds[1] - seconds[0]) / (MORE - FEW), 1e-6)
    return min(stage.epochs, max(1.0, 60 * minutes / step) / per_epoch)
