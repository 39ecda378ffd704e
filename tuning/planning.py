"""How much fits into the time there is: a little of it, timed, says."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace

from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.scoring import some_of
from hamburger_edge.models.training.runs import new_model
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Recipe

STEPS = 4
PROBE, READ_PROBE = 100, 300  # examples
FEWEST = 500  # that a graft learns from, however little time there is


def epochs_within(minutes: float, recipe: Recipe, base: LoadedBase, data: DistilledData) -> float:
    """Of a recipe with one stage: as many as it says, or as fit."""
    [stage] = recipe.stages
    shutil.rmtree(recipe.out, ignore_errors=True)
    model = new_model(recipe, base, data)
    trainer = Trainer(recipe, model, data, _unheard)
    per_epoch = len(trainer.batches(stage.cuts, 0).plan(0))
    short = replace(stage, epochs=STEPS / per_epoch)
    trainer = Trainer(replace(recipe, stages=(short,), judge_batches=1, patience=0), model, data, _unheard)
    trainer.run()
    shutil.rmtree(recipe.out)
    return min(stage.epochs, max(1.0, 60 * minutes / trainer.step_seconds) / per_epoch)


def scored_within(minutes: float, data: DistilledData, score: Callable[[DistilledData], object]) -> int:
    """Examples that can be scored in that time; 0: all."""
    if len(data) <= FEWEST:
        return 0
    probe = some_of(data, range(PROBE))
    began = time.monotonic()
    score(probe)
    each = (time.monotonic() - began) / len(probe)
    fitting = max(FEWEST, int(60 * minutes / each))
    return 0 if fitting >= len(data) else fitting


def read_within(minutes: float, recipe: Recipe, base: LoadedBase, data: DistilledData) -> int:
    """Examples that can be cut as the graft would, and learned from, in that time."""
    if len(data) <= FEWEST:
        return len(data)
    probe = some_of(data, range(READ_PROBE))
    shutil.rmtree(recipe.out, ignore_errors=True)
    began = time.monotonic()
    Trainer(replace(recipe, judge_batches=1), new_model(recipe, base, probe), probe, _unheard).run()
    each = (time.monotonic() - began) / len(probe)
    shutil.rmtree(recipe.out)
    return max(FEWEST, int(60 * minutes / each))


def _unheard(line: str) -> None:
    """Where nobody is told."""
