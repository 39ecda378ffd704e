"""Train a task's model from examples. Each stage writes a folder, and a stopped run resumes from them.

recipe --read_task--> task --choose_layers--> recipe --write_examples--> data --plan--> recipe
       --learn_base--> checkpoint --write_facts--> checkpoint with draft index

A model that merges gets a graft between the last two:

       --learn_base--> tuned base --score_examples--> scored data --learn_graft--> grafted checkpoint
       --learn_reading--> checkpoint

recipe.toml          all choices of the run, given or made on the way.
examples/            the examples as tokens.
tuning/, tuned/      training of the base, its checkpoint.
scored/, more/       the tuned base's outputs per token, answers that it generated.
graft/, grafted/     training of the graft and of the base, its checkpoint.
read/, reading/      examples for reading the graft's groups, training of base and graft on them.
checkpoint/          the final checkpoint.

With `continues` one stage, learn_more, continues the checkpoint `start` instead of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.tuning.stages import (
    Learned,
    answer_more,
    choose_layers,
    keep_base,
    learn_base,
    learn_graft,
    learn_more,
    learn_reading,
    plan,
    score_examples,
)
from hamburger_edge.tuning.task import Task, draft_index, read_task, write_examples, write_facts
from hamburger_edge.tuning.tune_recipe import TuneRecipe
from hamburger_edge.tuning.tune_run import TuneRun


@dataclass(frozen=True)
class Tuned:
    """A trained checkpoint in its working folder, with the recipe that made it."""

    recipe: TuneRecipe
    task: Task
    checkpoint: Path


def tune(recipe: TuneRecipe, run: TuneRun) -> Tuned:
    """Run all stages and return the trained checkpoint."""
    task = read_task(recipe, run)
    recipe = choose_layers(recipe, task, run)
    scores = ", ".join(f"{line.name} {100 * line.score:.1f}%" for line in task.baselines(task.requests))
    # every input is read and fits: from here on there is a run that the same command continues
    data = write_examples(task, run)
    index = draft_index(task, data)  # before the plan, which divides the time that is left
    recipe = plan(recipe, task, data, run)
    run.report(f"{len(task.requests)} held-out examples; right without a model: {scores}")
    trainings = _learn(recipe, task, data, run)
    if not any(training.trained for training in trainings):
        minutes = "" if run.budget is None else ", which --minutes does not change"
        run.report(
            f"nothing is left to train: {run.work} holds the trained model{minutes}; to train anew, "
            "delete that folder or name another --work"
        )
    recipe, checkpoint = trainings[-1].recipe, trainings[-1].checkpoint
    write_facts(checkpoint, task, data, index, recipe)
    return Tuned(recipe, task, checkpoint)


def _learn(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> list[Learned]:
    """Train the base, if the model merges a graft on it and both together; or only continue a model."""
    if recipe.continues:
        return [learn_more(recipe, task, data, run)]
    if not recipe.merges:
        make = learn_base if recipe.tune_base else keep_base
        return [make(recipe, task, data, run)]
    trainings = list[Learned]()
    if recipe.tune_base:
        trainings.append(learn_base(recipe, task, data, run))
        recipe = trainings[-1].recipe
    scored = score_examples(recipe, task, data, run)
    recipe, graft_data = scored.recipe, scored.data
    if recipe.more_answers:
        graft_data = answer_more(recipe, task, data, run)
    trainings.append(learn_graft(recipe, task, graft_data, run))
    if recipe.read:
        grafted = trainings[-1]
        trainings.append(learn_reading(grafted.recipe, grafted.checkpoint, task, data, run))
    return trainings
