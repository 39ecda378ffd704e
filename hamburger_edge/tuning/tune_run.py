"""The working folder of a run, its clock and its reports. It holds no choices: those are the recipe's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.models.checkpoints.manifest import MANIFEST, read_manifest
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.runs import made_alike, provenance, train
from hamburger_edge.models.training.trainer import Watch
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.support.progress import LogCallback, Progress, no_progress, time_left
from hamburger_edge.tuning.planning import Budget
from hamburger_edge.tuning.tune_recipe import TuneRecipe, write_tune_recipe

RECIPE = "recipe.toml"
ACTIVITIES = {
    "tuning": "learning to answer",
    "graft": "learning to merge tokens",
    "reading": "learning more",
}
# minutes; a shorter run skips the reading step and most of the parity gate, and evaluates fewer settings
HURRIED = 60.0


@dataclass(frozen=True)
class TuneRun:
    work: Path
    budget: Budget | None = None  # None: no limit
    report: LogCallback = print
    progress: Progress = no_progress

    @property
    def hurried(self) -> bool:
        return self.budget is not None and self.budget.minutes < HURRIED

    def store(self, recipe: TuneRecipe) -> TuneRecipe:
        """Write the recipe for a resumed run, and return it."""
        write_tune_recipe(self.work / RECIPE, recipe)
        return recipe

    def seconds(self, step: str, recipe: TuneRecipe) -> float:
        """Return the step's share of the time that is left."""
        return math.inf if self.budget is None else self.budget.share(step, steps_from(step, recipe))

    def train(
        self,
        recipe: Recipe,
        checkpoint: Path,
        data: DistilledData,
        template: dict[str, Any],
        *,
        seconds: float,
        watch: Watch | None = None,
    ) -> bool:
        """Train `checkpoint` and return True. Return False if it exists with the same provenance.

        The training ends after `seconds`, also if the machine became slower than planned.
        """
        manifest = checkpoint / MANIFEST
        if manifest.exists() and made_alike(
            read_manifest(manifest).provenance, provenance(recipe, data, None)
        ):
            return False
        train(
            recipe,
            checkpoint,
            chat_template=template,
            report=self.report,
            watch=watch,
            stage_seconds=seconds,
            progress=self.show,
        )
        return True

    def show(self, stage: str, step: int, steps: int, seconds: float, answers: dict[str, float]) -> None:
        """Show a training's progress: the time left, and the right answers at the last measurement."""
        left = time_left(seconds if self.budget is None else self.budget.left)
        right = f", {answers['right']:.0%} of answers right so far" if "right" in answers else ""
        self.progress(ACTIVITIES.get(stage, stage), step, steps, left + right)


def steps_from(step: str, recipe: TuneRecipe) -> list[str]:
    """Return this step and the steps after it."""
    if recipe.continues or not recipe.merges:
        return [step]
    answering, reading = ["answering"] * bool(recipe.more_answers), ["reading"] * bool(recipe.read)
    steps = ["tuning", "scoring", *answering, "graft", *reading]
    return steps[steps.index(step) :]
