"""Divide the minutes of a run among its steps, by the measured pace of each training."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic as now
from typing import Any

import numpy as np

from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.distillation.data_manifest import NAME, read_data_manifest
from hamburger_edge.models.distillation.shard_files import ARRAYS
from hamburger_edge.models.distillation.written import write_shard
from hamburger_edge.models.training.data.batches import Batches, DistilledData
from hamburger_edge.models.training.data.scoring import some_of
from hamburger_edge.models.training.runs import new_model
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Recipe

STEPS = 4  # training steps to time; the first does not count
PROBE, READ_PROBE = 25, 300  # examples that are timed first
FEWEST = 50  # minimum of examples for the graft; fewer cost speed only
FEWEST_PROMPTS = 10  # minimum of prompts to evaluate
# Shares of the remaining training time, among the steps that a run has. The base has the largest: it decides
# which answers are right, and an index of training answers drafts beside the graft.
WEIGHTS = {"tuning": 7.0, "scoring": 0.5, "answering": 0.5, "graft": 2.0, "reading": 3.0}
JUDGING = 0.1  # share of all minutes for the evaluation of the exported model ...
PUBLISHING = 0.02  # ... and of them for tables, pictures and copies after it
FORWARD = 1 / 3  # time to read a slot relative to that of training with it
USEFUL = 200  # minimum of useful steps of the base; fewer of the graft cost speed only
# export time in training slots: about three minutes with GPTQ calibration, else half a minute
EXPORT_SLOTS, EXPORT = {"int4": 80_000}, 15_000


@dataclass(frozen=True)
class Pace:
    """The measured pace of a training."""

    step: float  # seconds per step
    slots: int  # slots per step
    steps_per_token: float  # steps of an epoch / tokens of its data


class Budget:
    """The clock of a run, and the measured paces of its trainings."""

    def __init__(self, minutes: float):
        self.minutes, self.ends = minutes, now() + 60 * minutes
        self.export = 0.0  # expected seconds of the export
        self.paces: dict[str, Pace] = {}  # stage name -> pace

    @property
    def _spent(self) -> float:
        return 60 * self.minutes - self.left

    @property
    def left(self) -> float:
        """Seconds left of the whole budget."""
        return max(0.0, self.ends - now())

    def share(self, step: str, ahead: Sequence[str]) -> float:
        """Return the seconds for `step`, given the steps `ahead` and the reserves for export and judging."""
        training = max(0.0, self.left - self.export - JUDGING * 60 * self.minutes)
        return training * WEIGHTS[step] / sum(WEIGHTS[name] for name in ahead)

    def measure(self, recipe: Recipe, base: LoadedBase, data: DistilledData, precision: str) -> None:
        """Time a few steps of a recipe with one stage."""
        pace = self.paces[recipe.stages[0].name] = pace_of(recipe, base, data)
        self.export = self.export or EXPORT_SLOTS.get(precision, EXPORT) * pace.step / pace.slots

    def closing(self, recipe: Recipe, data: DistilledData) -> float:
        """Return the seconds from a training's last step to its end, if the pace was measured.

        A stop head is calibrated on the calibration part, and judged twice on the held-out part.
        """
        pace = self.paces.get(recipe.stages[0].name)
        if pace is None or not recipe.calibrate:
            return 0.0
        lengths, split = np.diff(data.starts), data.split(recipe.held_out)
        tokens = lengths[split.calibration].sum() + 2 * lengths[split.held_out].sum()
        return FORWARD * pace.step / pace.slots * float(tokens)

    def prompts(self, answer_seconds: float, answers: float) -> int:
        """Return how many prompts can be evaluated in the time that is left, at least FEWEST_PROMPTS.

        `answers`: to each prompt.
        """
        left = self.left - PUBLISHING * 60 * self.minutes
        return max(FEWEST_PROMPTS, int(left / (answer_seconds * answers)))

    def fitted(
        self, recipe: Recipe, data: DistilledData, ahead: Sequence[str], per_epoch: float | None = None
    ) -> Recipe:
        """Return the recipe with the epochs reduced to the available time, at least one step.

        `per_epoch`: steps of an epoch if known; otherwise estimated from the measured pace.
        """
        [stage] = recipe.stages
        pace = self.paces[stage.name]
        steps = max(1.0, (self.share(stage.name, ahead) - self.closing(recipe, data)) / pace.step)
        epochs = min(stage.epochs, steps / (per_epoch or pace.steps_per_token * len(data.ids)))
        return replace(recipe, stages=(replace(stage, epochs=epochs),))

    def plan(self, recipes: Sequence[Recipe], data: DistilledData, ahead: Sequence[str]) -> str:
        """Return a line that lists what fits. If that is too little, it names a useful number of minutes."""
        told, needed = list[str](), 0.0
        for recipe in recipes:
            [stage] = recipe.stages
            pace = self.paces[stage.name]
            per_epoch = pace.steps_per_token * len(data.ids)
            epochs = self.fitted(recipe, data, ahead).stages[0].epochs
            steps = max(1, round(epochs * per_epoch))
            if "base" in stage.learns:
                part = WEIGHTS[stage.name] / sum(WEIGHTS[name] for name in ahead)
                if steps < (least := min(USEFUL, stage.epochs * per_epoch)):
                    needed = least * pace.step / part
                told.append(f"{steps} steps of the base ({epochs:.1f} epochs)")
            else:
                told.append(f"{steps} steps of the graft")
        line = f"{self.minutes:g} minutes: {', '.join(told)}, export and judging"
        if needed:
            minutes = math.ceil((needed + self.export + self._spent) / (60 * (1 - JUDGING)))
            line += f"; too short to be useful, give --minutes {max(minutes, math.floor(self.minutes) + 1)}"
        return line


def pace_of(recipe: Recipe, base: LoadedBase, data: DistilledData) -> Pace:
    """Time STEPS steps of a recipe with one stage. Its output folder is deleted."""
    [stage] = recipe.stages
    shutil.rmtree(recipe.out, ignore_errors=True)
    model = new_model(recipe, base, data)
    trainer = Trainer(recipe, model, data, _unheard)
    per_epoch = len(trainer.batches(stage.cuts, 0).plan(0))
    short = replace(stage, epochs=STEPS / per_epoch)
    trainer = Trainer(replace(recipe, stages=(short,), judge_batches=1, patience=0), model, data, _unheard)
    trainer.run()
    shutil.rmtree(recipe.out)
    return Pace(trainer.step_seconds, recipe.rows * recipe.row_slots, per_epoch / len(data.ids))


def steps_per_epoch(recipe: Recipe, data: DistilledData, vocab_size: int) -> int:
    """Return the steps of an epoch of a one-stage recipe. They depend on where entropies cut the answers."""
    [stage], train = recipe.stages, data.split(recipe.held_out).train
    size = recipe.shape.draft_vocab_size
    batches = Batches(
        data,
        train,
        max_group_tokens=recipe.shape.max_group_tokens,
        draft_vocab=data.frequent_tokens(size, train) if size else None,
        vocab_size=vocab_size,
        rows=recipe.rows,
        row_slots=recipe.row_slots,
        cuts=stage.cuts,
        seed=0,
    )
    return max(1, len(batches.plan(0)))


def scored_within(seconds: float, data: DistilledData, score: Callable[[DistilledData], object]) -> int:
    """Return how many examples can be scored in `seconds`, or 0 for all."""
    fitting = _fitting(seconds, len(data), PROBE, lambda count: score(some_of(data, range(count))))
    return 0 if fitting == len(data) else fitting


def read_within(seconds: float, recipe: Recipe, base: LoadedBase, data: DistilledData) -> int:
    """Return how many examples can be cut as the graft groups them, and trained on, in `seconds`."""

    def read(count: int) -> None:
        examples = some_of(data, range(count))
        shutil.rmtree(recipe.out, ignore_errors=True)
        model = new_model(recipe, base, examples)
        Trainer(replace(recipe, judge_batches=1), model, examples, _unheard).run()
        shutil.rmtree(recipe.out)

    return _fitting(seconds, len(data), READ_PROBE, read)


def answered_within(seconds: float, prompts: int, answer: Callable[[int], object]) -> int:
    """Return how many of the `prompts` the tuned base can answer in `seconds`."""
    return _fitting(seconds, prompts, FEWEST, answer)


def _fitting(seconds: float, total: int, probe: int, step: Callable[[int], object]) -> int:
    """Return how many of `total` examples a step can take in `seconds`, at least FEWEST or all.

    The time to take the first `probe` of them, which is measured, is a part of the seconds.
    """
    if total <= FEWEST:
        return total
    count, began = min(probe, total), now()
    step(count)
    spent = now() - began
    return min(total, max(FEWEST, int((seconds - spent) / max(spent / count, 1e-9))))


def _unheard(line: str) -> None:
    """Drop a line of progress."""


def subset(data: DistilledData, share: float, wanted: int) -> DistilledData:
    """Return about `wanted` examples (0: all), with the same share of each side of the split."""
    if not 0 < wanted < len(data):
        return data
    every, split = -(-len(data) // wanted), data.split(share)
    sides = (split.train, split.calibration, split.held_out)
    return some_of(data, sorted(number for side in sides for number in side[::every]))


def write_subset(folder: Path, data: DistilledData, source: dict[str, Any]) -> DistilledData:
    """Write a subset as a data folder, unless the folder already holds it."""
    if not (folder / NAME).exists() or read_data_manifest(folder).source != source:
        write_shard(folder, folder.name, {name: getattr(data, name) for name in ARRAYS}, source)
    return DistilledData.load(folder)
