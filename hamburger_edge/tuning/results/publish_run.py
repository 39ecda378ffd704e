"""Publish a run: its checkpoint with a model card and pictures, and the evaluated bundle."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, read_calibration
from hamburger_edge.models.checkpoints.saving import CURVES, copy_checkpoint
from hamburger_edge.support.folders import copy_folder
from hamburger_edge.tuning.results.evaluate_run import BUNDLE, WRONG
from hamburger_edge.tuning.results.outcome import Outcome
from hamburger_edge.tuning.results.run_certainty import write_picture
from hamburger_edge.tuning.results.task_card import task_card
from hamburger_edge.tuning.results.wrong_answers import next_step
from hamburger_edge.tuning.tune import Tuned
from hamburger_edge.tuning.tune_run import TuneRun

CAPTIONS = {  # of the curves of each main training
    "tuning": "The base's training: share of right answers and losses over its steps",
    "reading": "The last training: share of right answers and losses over its steps",
    "graft": "The graft's training: losses and agreement over its steps",
}


@dataclass(frozen=True)
class Published:
    """The results of a run, outside its working folder."""

    checkpoint: Path
    bundle: Path
    wrong: Path  # file of the wrong answers
    advice: str  # what to do next
    texts: str  # a sentence about the examples in the checkpoint; "": it holds none

    def __str__(self) -> str:
        files = f"checkpoint  {self.checkpoint}\nbundle      {self.bundle}\nwrong       {self.wrong}"
        return f"{files}\n\n{self.advice}"


def bundle_beside(output: Path) -> Path:
    """Return the folder of the bundle that belongs to the checkpoint `output`."""
    return output.with_name(f"{output.name}.bundle")


def publish_run(tuned: Tuned, run: TuneRun, outcome: Outcome, output: Path) -> Published:
    """Copy the checkpoint, with its card and pictures, and the evaluated bundle out of the working folder."""
    recipe, texts = tuned.recipe, _texts(tuned)
    curves = run.work / recipe.main_training / CURVES  # matplotlib may have failed to draw it
    caption = CAPTIONS[recipe.main_training] if curves.exists() else ""
    card = task_card(output.absolute().name, tuned, outcome, texts, caption)
    checkpoint = copy_checkpoint(tuned.checkpoint, output, card=card)
    if curves.exists():
        shutil.copyfile(curves, checkpoint / CURVES)
    if outcome.certainty is not None:
        write_picture(checkpoint, outcome.certainty)
    bundle = copy_folder(run.work / BUNDLE, bundle_beside(output))
    epochs = recipe.tuning.stages[0].epochs if recipe.tune_base and recipe.tuning else None
    advice = next_step(outcome.plain, outcome.baselines, outcome.wrong, epochs)
    return Published(checkpoint, bundle, run.work / WRONG, advice, texts)


def _texts(tuned: Tuned) -> str:
    path = tuned.checkpoint / CALIBRATION
    if not path.exists():
        return ""
    return (
        f"{CALIBRATION} holds prompts and answers of {len(read_calibration(path))} of the "
        f"{len(tuned.task.conversations)} examples word for word, for exports to calibrate on: "
        "delete it before you share this checkpoint, if they are private"
    )
