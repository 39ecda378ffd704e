"""The stages of a run. Each takes a recipe and returns it with its own choices, and the files it made.

A stage whose files exist, made by the same recipe from the same data, returns them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.loading import find_base
from hamburger_edge.models.checkpoints.built_in import built_in, resolve
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.manifest import DELTA, MANIFEST, read_manifest
from hamburger_edge.models.checkpoints.saving import save_checkpoint
from hamburger_edge.models.distillation.data_manifest import NAME, read_data_manifest
from hamburger_edge.models.distillation.written import write_shard
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.scoring import score
from hamburger_edge.models.training.runs import new_model
from hamburger_edge.models.training.speed import autocast
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.support.files import sha256
from hamburger_edge.tuning.dataset import TOKENIZER
from hamburger_edge.tuning.judging.watching import AnswersRight
from hamburger_edge.tuning.layers import most_active_layers
from hamburger_edge.tuning.more_answers import answer_prompts
from hamburger_edge.tuning.planning import (
    FEWEST,
    read_within,
    scored_within,
    steps_per_epoch,
    subset,
    write_subset,
)
from hamburger_edge.tuning.shape import (
    continuing_recipe,
    graft_recipe,
    reading_recipe,
    row_slots,
    tuning_recipe,
)
from hamburger_edge.tuning.task import EXAMPLES, Task
from hamburger_edge.tuning.tune_recipe import TuneRecipe
from hamburger_edge.tuning.tune_run import TuneRun, steps_from

CHECKPOINT = "checkpoint"
TUNED, SCORED, MORE, GRAFTED, READ, PROBE = "tuned", "scored", "more", "grafted", "read", "probe"
SCORED_AT_ONCE = 4  # rows per batch
LAYER_EXAMPLES = 128  # that choose the layers of the base


@dataclass(frozen=True)
class Learned:
    """The result of a stage that makes a checkpoint."""

    recipe: TuneRecipe
    checkpoint: Path
    trained: bool  # False: an earlier run had made the checkpoint


@dataclass(frozen=True)
class Scored:
    """The examples with the tuned base's outputs for every token."""

    recipe: TuneRecipe
    data: DistilledData


def choose_layers(recipe: TuneRecipe, task: Task, run: TuneRun) -> TuneRecipe:
    """Drop layers of the base if the recipe has a number of layers; those that change the examples least.

    A start that keeps as many layers determines them.
    """
    if not recipe.layers or recipe.base_layers:
        return recipe
    kept = read_manifest(resolve(recipe.start) / MANIFEST).base.layers if recipe.start else ()
    if len(kept) == recipe.layers:
        return task.dataset.drop_layers(kept)
    train = task.split.train
    examples = [task.conversations[number].ids for number in train[:: max(1, len(train) // LAYER_EXAMPLES)]]
    layers = most_active_layers(task.dataset.base, examples[:LAYER_EXAMPLES], recipe.layers)
    total = task.dataset.base.config.num_layers
    run.report(f"{len(layers)} of the base's {total} layers are kept: {' '.join(map(str, layers))}")
    return task.dataset.drop_layers(layers)


def plan(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> TuneRecipe:
    """Fit the recipe to the minutes: time a few steps of each training without a recipe, report the plan."""
    if run.hurried or not recipe.merges:
        recipe = replace(recipe, read=0)
    if run.hurried:
        recipe = replace(recipe, evaluation=replace(recipe.evaluation, quick=True))
    run.store(recipe)
    if run.budget is None:
        return recipe
    trainings = _open_trainings(recipe, task, data, run)
    for training in trainings:
        run.budget.measure(training, task.dataset.base, data, recipe.precision)
    if trainings:
        ahead = steps_from(trainings[0].stages[0].name, recipe)
        run.report(run.budget.plan(trainings, data, ahead))
    elif not (run.work / CHECKPOINT / MANIFEST).exists():
        # the time of the export is known by a training's pace
        base = task.dataset.base
        training = _given_training(recipe, data, base.config, run)
        run.budget.measure(training, base, data, recipe.precision)
    return recipe


def _open_trainings(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> list[Recipe]:
    """Return the trainings ahead whose length the recipe leaves open, but for the one that reads groups."""
    if recipe.continues:
        if recipe.reading is not None:
            return []
        more = continuing_recipe(recipe.start, data)
        return [_placed(recipe, more, run, EXAMPLES, PROBE)]
    trainings, tuning = list[Recipe](), recipe.tuning
    if recipe.tune_base and tuning is None:
        start, tuning = _chosen_tuning(recipe, task, data)
        trainings.append(replace(_placed(recipe, tuning, run, EXAMPLES, PROBE), tuned_base=start))
    if recipe.merges and recipe.graft is None:
        graft = graft_recipe(data, task.dataset.base.config, tuning)
        trainings.append(_placed(recipe, graft, run, EXAMPLES, PROBE))
    return trainings


def _given_training(recipe: TuneRecipe, data: DistilledData, config: BaseConfig, run: TuneRun) -> Recipe:
    """Return the main training of a recipe that leaves none open."""
    training: Recipe | None = getattr(recipe, recipe.main_training)
    if training is None:  # of a base that is kept as it is
        training = tuning_recipe(data, config)
    placed = _placed(recipe, training, run, EXAMPLES, PROBE)
    return replace(placed, start=recipe.start) if recipe.continues else placed


def learn_base(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> Learned:
    """Train the base to answer the task's prompts. It is the whole model unless that merges."""
    if recipe.tuning is None:
        start, tuning = _chosen_tuning(recipe, task, data)
        recipe = run.store(replace(recipe, start=start, tuning=_fitted(recipe, tuning, task, data, run)))
    assert recipe.tuning is not None
    training = replace(_placed(recipe, recipe.tuning, run, EXAMPLES, "tuning"), tuned_base=recipe.start)
    watch = _answers_right(task, training)
    checkpoint = run.work / (TUNED if recipe.merges else CHECKPOINT)
    return _learned("tuning", recipe, training, checkpoint, task, data, run, watch)


def keep_base(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> Learned:
    """Write the checkpoint of a base that knows the task already."""
    checkpoint = run.work / CHECKPOINT
    base, reference = find_base(recipe.base)
    template = task.dataset.encoder.template.to_json()
    origin = {"base": reference["sha256"], "template": template}
    manifest = checkpoint / MANIFEST
    if missing := not manifest.exists() or read_manifest(manifest).provenance != origin:
        save_checkpoint(
            checkpoint,
            _tuned_model(recipe, task, data, run),
            base=reference,
            tokenizer=None,
            chat_template=template,
            provenance=origin,
            license={"graft": None, "base": base.license},
        )
    return Learned(recipe, checkpoint, trained=missing)


def learn_more(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> Learned:
    """Continue the recipe's start: its base, and its graft if it has one."""
    if recipe.reading is None:
        reading = _fitted(recipe, continuing_recipe(recipe.start, data), task, data, run)
        recipe = run.store(replace(recipe, reading=reading))
    assert recipe.reading is not None
    training = replace(_placed(recipe, recipe.reading, run, EXAMPLES, "reading"), start=recipe.start)
    watch = _answers_right(task, training)
    return _learned("reading", recipe, training, run.work / CHECKPOINT, task, data, run, watch)


def _answers_right(task: Task, training: Recipe) -> AnswersRight:
    """Return the watch that measures the share of right answers while a base learns."""
    return AnswersRight(
        task.requests,
        task.judge,
        task.dataset.encoder.tokenizer,
        end=task.dataset.encoder.end,
        longest=task.dataset.longest,
        autocast=partial(autocast, training),
    )


def score_examples(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> Scored:
    """Write the outputs of the tuned base for the tokens of all examples, or of as many as time allows."""
    folder = run.work / SCORED
    if (folder / NAME).exists() and read_data_manifest(folder).source == _score_source(recipe, data, run):
        return Scored(recipe, DistilledData.load(folder))
    model = _tuned_model(recipe, task, data, run)
    tuning = tuning_recipe(data, task.dataset.base.config)
    outputs = partial(
        score,
        model,
        rows=SCORED_AT_ONCE,
        row_slots=row_slots(data, task.dataset.base.config.context_length),
        autocast=autocast(recipe.tuning or tuning, model.base.norm.weight.device.type),
    )
    if run.budget is not None and not recipe.scored:
        fitting = scored_within(run.seconds("scoring", recipe), data, outputs)
        recipe = run.store(replace(recipe, scored=fitting))
        if fitting:
            least = ", the fewest that train one" if fitting == FEWEST else ""
            run.report(f"the graft learns from {fitting} of {len(data)} examples{least}")
    arrays = outputs(subset(data, recipe.share, recipe.scored), progress=run.progress)
    write_shard(folder, SCORED, arrays, _score_source(recipe, data, run))
    return Scored(recipe, DistilledData.load(folder))


def answer_more(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> DistilledData:
    """Let the tuned base answer training prompts; return scores and answers together."""
    base, source = _tuned_model(recipe, task, data, run).base, _score_source(recipe, data, run)
    answer_prompts(base, source, run.work / MORE, run.work / PROBE, recipe, task, run)
    return DistilledData.load(run.work / SCORED, run.work / MORE)


def learn_graft(recipe: TuneRecipe, task: Task, scored: DistilledData, run: TuneRun) -> Learned:
    """Train a graft on the tuned base."""
    if recipe.graft is None:
        graft = graft_recipe(scored, task.dataset.base.config, recipe.tuning)
        recipe = run.store(replace(recipe, graft=_fitted(recipe, graft, task, scored, run)))
    assert recipe.graft is not None
    training = _placed(recipe, recipe.graft, run, SCORED, "graft")
    if recipe.tune_base:
        training = replace(training, tuned_base=str(run.work / TUNED))
    checkpoint = run.work / (GRAFTED if recipe.read else CHECKPOINT)
    return _learned("graft", recipe, training, checkpoint, task, scored, run)


def learn_reading(
    recipe: TuneRecipe, grafted: Path, task: Task, data: DistilledData, run: TuneRun
) -> Learned:
    """Continue training base and graft on answers cut as this graft groups them."""
    assert recipe.graft is not None
    if recipe.reading is None:
        recipe = run.store(replace(recipe, reading=reading_recipe(recipe.tuning, recipe.graft)))
    assert recipe.reading is not None
    training = replace(_placed(recipe, recipe.reading, run, READ, "reading"), start=str(grafted))
    if run.budget is not None and not (run.work / READ).exists():
        probe = replace(training, data=str(run.work / EXAMPLES), out=str(run.work / PROBE))
        fitting = read_within(run.seconds("reading", recipe), probe, task.dataset.base, data)
        recipe = run.store(replace(recipe, read=min(recipe.read, fitting)))
    part = subset(data, recipe.share, recipe.read)
    source = {"base": recipe.base, "examples": data.sha256, "read": len(part)}
    read = write_subset(run.work / READ, part, source)
    return _learned("reading", recipe, training, run.work / CHECKPOINT, task, read, run)


def _learned(
    step: str,
    recipe: TuneRecipe,
    training: Recipe,
    checkpoint: Path,
    task: Task,
    data: DistilledData,
    run: TuneRun,
    watch: AnswersRight | None = None,
) -> Learned:
    template = task.dataset.encoder.template.to_json()
    seconds = run.seconds(step, recipe)
    if run.budget is not None:
        seconds = max(0.0, seconds - run.budget.closing(training, data))
    trained = run.train(training, checkpoint, data, template, seconds=seconds, watch=watch)
    return Learned(recipe, checkpoint, trained)


def _chosen_tuning(recipe: TuneRecipe, task: Task, data: DistilledData) -> tuple[str, Recipe]:
    """Return the start checkpoint of the base's tuning, and the recipe for these examples."""
    start, residual = _start(recipe)
    config = task.dataset.base.config
    chosen = tuning_recipe(data, config, merge=recipe.merges, full=recipe.full, residual=residual)
    return start, chosen


def _start(recipe: TuneRecipe) -> tuple[str, Literal["mean", "last"]]:
    """Return the start checkpoint and its `merge_residual`; '' and "last" stand for the plain base.

    The base of a built-in graft already reads merged text. Full tuning starts from the plain base, and so
    does a base without some of its layers or tokens.
    """
    whole = not recipe.base_layers and not recipe.tokens
    start = recipe.start or (recipe.base if recipe.base in built_in() and whole else "")
    if not start or recipe.full:
        return "", "last"
    return start, load_checkpoint(start).model.config.merge_residual


def _placed(recipe: TuneRecipe, training: Recipe, run: TuneRun, data: str, out: str) -> Recipe:
    """Set a training's base, data folders, output folder and held-out share."""
    return replace(
        training,
        base=recipe.base,
        base_layers=recipe.base_layers,
        tokenizer=str(run.work / TOKENIZER) if recipe.tokens else "",
        data=str(run.work / data),
        more_data=(str(run.work / MORE),) if data == SCORED and recipe.more_answers else (),
        out=str(run.work / out),
        held_out=recipe.share,
    )


def _fitted(recipe: TuneRecipe, training: Recipe, task: Task, data: DistilledData, run: TuneRun) -> Recipe:
    """Return the training with as many epochs as its share of the minutes allows."""
    if run.budget is None:
        return training
    placed, ahead = replace(training, held_out=recipe.share), steps_from(training.stages[0].name, recipe)
    per_epoch = steps_per_epoch(placed, data, task.dataset.base.config.vocab_size)
    return run.budget.fitted(training, data, ahead, per_epoch)


def _score_source(recipe: TuneRecipe, data: DistilledData, run: TuneRun) -> dict[str, Any]:
    """Return the provenance of the scores: base, hash of its update, hash of the examples."""
    tuned = sha256(run.work / TUNED / DELTA) if recipe.tune_base else ""
    part = {"scored": recipe.scored} if recipe.scored else {}
    return {"base": recipe.base, "tuned": tuned, "examples": data.sha256, **part}


def _tuned_model(recipe: TuneRecipe, task: Task, data: DistilledData, run: TuneRun) -> Hamburger:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if recipe.tune_base:
        return load_checkpoint(run.work / TUNED).model.to(device)
    training = _placed(recipe, tuning_recipe(data, task.dataset.base.config), run, EXAMPLES, "tuning")
    return new_model(training, task.dataset.base, data).eval().to(device)
