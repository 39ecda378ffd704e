"""Train a task's model from examples. Each step writes a folder, and a stopped run resumes from them.

recipe.toml    all choices of the run, given or made on the way
examples/      the examples as tokens
tuning/        training of the base                      tuned/       its checkpoint
scored/        the tuned base's outputs per token        more/        answers that the tuned base generated
graft/         training of the graft, and of the base    grafted/     its checkpoint
read/          examples for reading the graft's groups   reading/     training of base and graft on them
checkpoint/    the final checkpoint
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.judges import find_judge, fitting_judge
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.checkpoints.built_in import built_in
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, write_calibration
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.models.checkpoints.manifest import DELTA, MANIFEST, read_manifest
from hamburger_edge.models.distillation.data_manifest import NAME, read_data_manifest
from hamburger_edge.models.distillation.written import WrittenConversation, write_conversations, write_shard
from hamburger_edge.models.training.data.batches import DistilledData, Split, split_questions
from hamburger_edge.models.training.data.scoring import score
from hamburger_edge.models.training.runs import made_alike, new_model, provenance, train
from hamburger_edge.models.training.speed import fitting_precision
from hamburger_edge.models.training.trainer import Watch
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.support.files import sha256
from hamburger_edge.support.progress import LogCallback, Progress, no_progress
from hamburger_edge.tuning.baselines import Baseline, baselines
from hamburger_edge.tuning.dataset import Dataset, common_answer_prefix
from hamburger_edge.tuning.draft_index import index_answers, question_and_answer
from hamburger_edge.tuning.examples import Example
from hamburger_edge.tuning.more_answers import write_answers
from hamburger_edge.tuning.planning import (
    Budget,
    read_within,
    scored_within,
    steps_per_epoch,
    subset,
    write_subset,
)
from hamburger_edge.tuning.shape import graft_recipe, reading_recipe, row_slots, tuning_recipe
from hamburger_edge.tuning.tune_recipe import TuneRecipe, write_tune_recipe
from hamburger_edge.tuning.watching import AnswersRight

RECIPE, CHECKPOINT = "recipe.toml", "checkpoint"
EXAMPLES, TUNED, SCORED, MORE, GRAFTED, READ = "examples", "tuned", "scored", "more", "grafted", "read"
SCORED_AT_ONCE = 4  # rows per batch
HURRIED = 60.0  # minutes; a shorter run skips reading step and parity gate, and evaluates fewer settings


class Tuning:
    """One run in its working folder. `minutes` limits the trainings that the recipe does not contain."""

    split: Split  # of the given examples; set when they are read

    def __init__(
        self,
        recipe: TuneRecipe,
        work: Path,
        *,
        minutes: float | None = None,
        report: LogCallback = print,
        progress: Progress = no_progress,
    ) -> None:
        self.recipe, self.work = recipe, work
        self.budget = None if minutes is None else Budget(minutes)
        self.report, self.progress = report, progress
        self.dataset = Dataset(recipe, report, progress)
        self.trained = False  # whether this process trained anything

    def train(self) -> Path:
        """Run all steps and return the trained checkpoint."""
        self.report(str(self.dataset.examples))
        written = self._encoded(self.dataset.examples.examples)
        self.split = self._split(written)
        told = ", ".join(f"{one.name} {100 * one.score:.1f}%" for one in self.baselines(self.requests))
        # every input is read and fits: from here on there is a run that the same command continues
        data = self._write_examples(written)
        self._choose(self._in_time(self.recipe))
        if self.budget is not None:
            self._plan(self.budget, data)
        self.report(f"{len(self.requests)} held-out examples; right without a model: {told}")
        if self.recipe.tune_base:
            self._tune_base(data)
        scored = self._score(data)
        if self.recipe.more_answers:
            self._answer_more(data)
            scored = DistilledData.load(self.work / SCORED, self.work / MORE)
        checkpoint = self._train_graft(scored)
        if self.recipe.read:
            checkpoint = self._read(checkpoint, data)
        if not self.trained:
            minutes = "" if self.budget is None else ", which --minutes does not change"
            self.report(
                f"nothing is left to train: {self.work} holds the trained model{minutes}; to train anew, "
                "delete that folder or name another --work"
            )
        self._write_facts(checkpoint, data)
        return checkpoint

    @cached_property
    def requests(self) -> list[Request]:
        """The held-out prompts and their answers."""
        return self.dataset.requests(self.split)

    @cached_property
    def judge(self) -> str:
        return self.recipe.judge or fitting_judge([request.expected for request in self.requests])

    def baselines(self, requests: Sequence[Request]) -> list[Baseline]:
        """Return the scores of answers without a model on these requests."""
        learned = [self.dataset.examples.examples[number] for number in self.split.train]
        return baselines(learned, requests, find_judge(self.judge))

    # -- steps -----------------------------------------------------------------------------------------

    def _split(self, written: Sequence[WrittenConversation]) -> Split:
        split = split_questions((one.question for one in written), self.recipe.share)
        if not (split.train and split.held_out and split.calibration):
            raise InputError(
                f"{self.recipe.examples}: the hash that holds prompts out chooses too few of {len(written)} "
                "examples: give hundreds, and those as well that were held out before"
            )
        return split

    def _write_examples(self, written: list[WrittenConversation]) -> DistilledData:
        """Write the examples as tokens, followed by the augmented training examples."""
        if self.recipe.augment:
            more = self.dataset.more_by_augmenting(self.split)
            self.report(str(more))
            written = [*written, *self._encoded(more.examples)]
        write_conversations(self.work / EXAMPLES, EXAMPLES, written, {"base": "given"})
        return DistilledData.load(self.work / EXAMPLES)

    def _encoded(self, examples: Sequence[Example]) -> list[WrittenConversation]:
        written = [self.dataset.encoder.encode(example) for example in examples]
        context = self.dataset.base.config.context_length
        for example, conversation in zip(examples, written, strict=True):
            if (tokens := len(conversation.ids)) > context:
                asked = example.turns[0].prompt
                raise InputError(
                    f"{self.recipe.examples}: the example that asks {asked[:40]!r} has {tokens} tokens, the "
                    f"base's context {context}: shorten it or leave it out"
                )
        return written

    def _tune_base(self, data: DistilledData) -> None:
        if self.recipe.tuning is None:
            start, recipe = self._tuning(data)
            self._choose(replace(self.recipe, start=start, tuning=self._fitted(recipe, data)))
        assert self.recipe.tuning is not None
        placed = self._placed(self.recipe.tuning, EXAMPLES, "tuning")
        watch = AnswersRight(
            self.requests,
            find_judge(self.judge),
            self.dataset.encoder.tokenizer,
            end=self.dataset.encoder.end,
            longest=self.dataset.longest,
            autocast=self._autocast,
        )
        self._make("tuning", replace(placed, tuned_base=self.recipe.start), self.work / TUNED, data, watch)

    def _tuning(self, data: DistilledData) -> tuple[str, Recipe]:
        """Return the start checkpoint of the base's tuning, and the recipe for these examples."""
        start, residual = self._start()
        recipe = tuning_recipe(data, self.dataset.base.config, full=self.recipe.full, residual=residual)
        return start, self._exactly(recipe)

    def _exactly(self, recipe: Recipe) -> Recipe:
        """Set the precision in which this machine multiplies fastest."""
        return replace(recipe, precision=fitting_precision("cuda" if torch.cuda.is_available() else "cpu"))

    def _start(self) -> tuple[str, Literal["mean", "last"]]:
        """Return the start checkpoint and its `merge_residual`; '' and "last" stand for the plain base.

        A built-in graft on this base already reads merged text. Full tuning starts from the plain base.
        """
        start = self.recipe.start or (self.recipe.base if self.recipe.base in built_in() else "")
        if not start or self.recipe.full:
            return "", "last"
        return start, load_checkpoint(start).model.config.merge_residual

    def _score(self, data: DistilledData) -> DistilledData:
        """Write the examples with the tuned base's outputs for every token, unless they exist."""
        folder = self.work / SCORED
        if (folder / NAME).exists() and read_data_manifest(folder).source == self._said_by(data):
            return DistilledData.load(folder)
        model = self._model_that_scores(data)
        read = partial(
            score,
            model,
            rows=SCORED_AT_ONCE,
            row_slots=row_slots(data, self.dataset.base.config.context_length),
            autocast=self._autocast(model.base.norm.weight.device.type),
        )
        if self.budget is not None and not self.recipe.scored:
            fitting = scored_within(self.budget.share("scoring", self._ahead("scoring")), data, read)
            self._choose(replace(self.recipe, scored=fitting))
            if fitting:
                self.report(f"the graft learns from {fitting} of {len(data)} examples")
        scored = read(subset(data, self.recipe.share, self.recipe.scored), progress=self.progress)
        write_shard(folder, SCORED, scored, self._said_by(data))
        return DistilledData.load(folder)

    def _answer_more(self, data: DistilledData) -> None:
        """Let the tuned base answer evenly spaced training prompts."""
        train = self.split.train
        chosen = train[:: max(1, len(train) // self.recipe.more_answers)][: self.recipe.more_answers]
        write_answers(
            self._model_that_scores(data).base,
            [self.dataset.encoder.question(self.dataset.examples.examples[number]) for number in chosen],
            self.work / MORE,
            {**self._said_by(data), "asked": len(chosen)},
            end=self.dataset.encoder.end,
            longest=self.dataset.longest,
            progress=self.progress,
        )

    def _said_by(self, data: DistilledData) -> dict[str, Any]:
        """Return the provenance of the scores: base, hash of its update, hash of the examples."""
        tuned = sha256(self.work / TUNED / DELTA) if self.recipe.tune_base else ""
        some = {"scored": self.recipe.scored} if self.recipe.scored else {}
        return {"base": self.recipe.base, "tuned": tuned, "examples": data.sha256, **some}

    def _model_that_scores(self, data: DistilledData) -> Hamburger:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.recipe.tune_base:
            return load_checkpoint(self.work / TUNED).model.to(device)
        recipe = self._placed(tuning_recipe(data, self.dataset.base.config), EXAMPLES, "tuning")
        return new_model(recipe, self.dataset.base, data).eval().to(device)

    def _train_graft(self, scored: DistilledData) -> Path:
        if self.recipe.graft is None:
            recipe = self._exactly(graft_recipe(scored, self.dataset.base.config, self.recipe.tuning))
            self._choose(replace(self.recipe, graft=self._fitted(recipe, scored)))
        assert self.recipe.graft is not None
        recipe = self._on_tuned(self._placed(self.recipe.graft, SCORED, "graft"))
        return self._make("graft", recipe, self.work / (GRAFTED if self.recipe.read else CHECKPOINT), scored)

    def _read(self, grafted: Path, data: DistilledData) -> Path:
        """Continue training base and graft on answers cut as this graft groups them."""
        assert self.recipe.graft is not None
        if self.recipe.reading is None:
            chosen = reading_recipe(self.recipe.tuning, self.recipe.graft)
            self._choose(replace(self.recipe, reading=chosen))
        assert self.recipe.reading is not None
        recipe = replace(self._placed(self.recipe.reading, READ, "reading"), start=str(grafted))
        if self.budget is not None and not (self.work / READ).exists():
            probe = replace(recipe, data=str(self.work / EXAMPLES), out=str(self.work / "probe"))
            seconds = self.budget.share("reading", self._ahead("reading"))
            fitting = read_within(seconds, probe, self.dataset.base, data)
            self._choose(replace(self.recipe, read=min(self.recipe.read, fitting)))
        part = subset(data, self.recipe.share, self.recipe.read)
        source = {"base": self.recipe.base, "examples": data.sha256, "read": len(part)}
        read = write_subset(self.work / READ, part, source)
        return self._make("reading", recipe, self.work / CHECKPOINT, read)

    def _make(
        self, step: str, recipe: Recipe, checkpoint: Path, data: DistilledData, watch: Watch | None = None
    ) -> Path:
        """Train a checkpoint by a recipe, unless one with the same provenance exists.

        The step ends with its share of the minutes, also if the machine became slower than planned.
        """
        made = provenance(recipe, data, None)
        there = checkpoint / MANIFEST
        if there.exists() and made_alike(read_manifest(there).provenance, made):
            return checkpoint
        template = self.dataset.encoder.template.to_json()
        seconds = math.inf if self.budget is None else self.budget.share(step, self._ahead(step))
        written = train(
            recipe,
            checkpoint,
            chat_template=template,
            report=self.report,
            watch=watch,
            stage_seconds=seconds,
        )
        assert written is not None  # no step limit was set, so training ran to its end
        self.trained = True
        return written

    def _write_facts(self, checkpoint: Path, data: DistilledData) -> None:
        """Write what exports and drafts take from the examples beside the weights."""
        if self.recipe.calibration_text:
            write_calibration(checkpoint / CALIBRATION, self.dataset.calibration(data, self.split))
        else:
            (checkpoint / CALIBRATION).unlink(missing_ok=True)
        write_into(checkpoint, answer_prefix=common_answer_prefix(data, self.split.train))

        def pairs(numbers: Sequence[int]) -> list[tuple[list[int], list[int]]]:
            parts = (slice(*data.starts[number : number + 2]) for number in numbers)
            return [question_and_answer(data.ids[part], data.roles[part]) for part in parts]

        tokenizer, size = self.dataset.encoder.tokenizer, self.dataset.base.config.vocab_size
        # answers held out judge the settings, so that the index is fitted to others
        index_answers(checkpoint, pairs(self.split.train), pairs(self.split.calibration), tokenizer, size)

    # -- recipes ---------------------------------------------------------------------------------------

    def _placed(self, recipe: Recipe, data: str, out: str) -> Recipe:
        """Set a training's base, data folders, output folder and held-out share."""
        return replace(
            recipe,
            base=self.recipe.base,
            data=str(self.work / data),
            more_data=(str(self.work / MORE),) if data == SCORED and self.recipe.more_answers else (),
            out=str(self.work / out),
            held_out=self.recipe.share,
        )

    def _on_tuned(self, recipe: Recipe) -> Recipe:
        return replace(recipe, tuned_base=str(self.work / TUNED)) if self.recipe.tune_base else recipe

    def _autocast(self, kind: str) -> AbstractContextManager[Any]:
        """Return the autocast context for a device kind, with the precision of the base's tuning."""
        exact = self.recipe.tuning is not None and self.recipe.tuning.precision == "fp32"
        return nullcontext() if exact else torch.autocast(kind, dtype=torch.bfloat16)

    # -- time ------------------------------------------------------------------------------------------

    def _plan(self, budget: Budget, data: DistilledData) -> None:
        """Time a few steps of each training that has no recipe yet, and report the plan."""
        chosen = list[Recipe]()
        taught, base = self.recipe.tuning, self.dataset.base
        if self.recipe.tune_base and taught is None:
            start, taught = self._tuning(data)
            chosen.append(replace(self._placed(taught, EXAMPLES, "probe"), tuned_base=start))
        if self.recipe.graft is None:
            graft = self._exactly(graft_recipe(data, base.config, taught))
            chosen.append(self._placed(graft, EXAMPLES, "probe"))
        for recipe in chosen:
            budget.measure(recipe, base, data, self.recipe.precision)
        if chosen:
            self.report(budget.plan(chosen, data, self._ahead(chosen[0].stages[0].name)))

    def _fitted(self, recipe: Recipe, data: DistilledData) -> Recipe:
        if self.budget is None:
            return recipe
        placed, ahead = replace(recipe, held_out=self.recipe.share), self._ahead(recipe.stages[0].name)
        per_epoch = steps_per_epoch(placed, data, self.dataset.base.config.vocab_size)
        return self.budget.fitted(recipe, data, ahead, per_epoch)

    def _ahead(self, step: str) -> list[str]:
        """Return this step and the steps after it."""
        steps = ["tuning", "scoring", "graft", *(["reading"] if self.recipe.read else [])]
        return steps[steps.index(step) :]

    @property
    def hurried(self) -> bool:
        return self.budget is not None and self.budget.minutes < HURRIED

    def _in_time(self, recipe: TuneRecipe) -> TuneRecipe:
        if not self.hurried:
            return recipe
        return replace(recipe, read=0, evaluation=replace(recipe.evaluation, quick=True))

    def _choose(self, recipe: TuneRecipe) -> None:
        """Use this recipe from now on, and store it for a resumed run."""
        self.recipe = recipe
        write_tune_recipe(self.work / RECIPE, recipe)
