"""How long a training may be: a few steps of it, timed, say how many fit."""

from __future__ import annotations

import shutil
from dataclasses import replace

from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.training.batches import DistilledData
from hamburger_edge.models.training.recipe import Recipe
from hamburger_edge.models.training.runs import new_model
from hamburger_edge.models.training.trainer import Trainer

STEPS = 4


def epochs_within(minutes: float, recipe: Recipe, base: LoadedBase, data: DistilledData) -> float:
    """Of a recipe with one stage: as many as it says, or as fit."""
    [stage] = recipe.stages
    shutil.rmtree(recipe.out, ignore_errors=True)
    model = new_model(recipe, base, data)
    trainer = Trainer(recipe, model, data, _unheard)
    per_epoch = len(trainer.batches(trainer.split.train, stage.cuts, 0).plan(0))
    short = replace(stage, epochs=STEPS / per_epoch)
    trainer = Trainer(replace(recipe, stages=(short,), judge_batches=1, patience=0), model, data, _unheard)
    trainer.run()
    shutil.rmtree(recipe.out)
    return min(stage.epochs, max(1.0, 60 * minutes / trainer.step_seconds) / per_epoch)


def _unheard(line: str) -> None:
    """Where nobody is told."""
