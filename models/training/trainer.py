"""Train a graft, and optionally its base, by a recipe: stages, saves, resuming, metrics."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hamburger_edge.errors import ConfigError, HamburgerError
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import without_cudnn_attention
from hamburger_edge.models.training.data.batches import Batches, Cuts, DistilledData, TrainingBatch
from hamburger_edge.models.training.grafting import learned_state, prepare
from hamburger_edge.models.training.metrics import Totals, append_metrics
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.optimizers import schedule, set_rate
from hamburger_edge.models.training.own_groups import own_lengths
from hamburger_edge.models.training.reading import Reader, judging_cuts
from hamburger_edge.models.training.run_state import Reached, load_state, save_state
from hamburger_edge.models.training.speed import base_work, precision_of, product_rate, rounds_base
from hamburger_edge.models.training.stage_clock import StageClock
from hamburger_edge.models.training.stage_run import StageRun
from hamburger_edge.models.training.stop_calibration import StopCalibration
from hamburger_edge.models.training.training_recipe import Recipe, Stage
from hamburger_edge.models.training.updates.averaging import WeightMean
from hamburger_edge.models.training.updates.processes import Processes
from hamburger_edge.models.training.updates.step_limit import StepLimit
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.processors import give_back_memory
from hamburger_edge.support.progress import LogCallback

Watch = Callable[[Hamburger], dict[str, float]]  # figures of a model in training, logged as "answers"
# stage, step, steps, seconds left of the stage, the watch's last figures
TrainingProgress = Callable[[str, int, int, float, dict[str, float]], None]
SHOW_SECONDS = 15.0  # between two lines of figures
MOST_FAULTS = 5  # faulty steps in a row
LOOK_SECONDS, LOOK_SHARE = 60.0, 0.04  # shortest time between two looks of a watch; its share of all time


class Trainer:
    """Runs a recipe's stages; a killed run continues bit for bit (on a CPU) from its last save."""

    def __init__(
        self,
        recipe: Recipe,
        model: Hamburger,
        data: DistilledData,
        report: LogCallback = print,
        device: str | None = None,  # None: the GPU if there is one
        divide: bool = False,  # weights among processes
        watch: Watch | None = None,  # looks at the model every few minutes
        progress: TrainingProgress | None = None,  # replaces the lines with figures, which metrics.jsonl has
        stage_seconds: float = math.inf,  # a stage has fewer steps if these do not suffice; one process only
    ):
        without_cudnn_attention()
        self.recipe, self.model, self.data = recipe, model, data
        self.processes = Processes(divide=divide, device=device)
        self.report: LogCallback = report if self.processes.first else lambda line: None
        self.progress, self.answers = progress, dict[str, float]()  # the watch's last figures
        self.out = Path(recipe.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.split = data.split(recipe.held_out)
        if not self.split.train or not self.split.held_out or not self.split.calibration:
            raise ConfigError(f"{recipe.data}: too few conversations to hold any out: distill more tokens")
        self.device = self.processes.device
        self.together = recipe.step_batches or self.processes.count  # batches of a step
        if self.together % self.processes.count:
            raise ConfigError(
                f"recipe.step_batches is {self.together}, no multiple of {self.processes.count} "
                "processes: launch another number of them"
            )
        self.reader = Reader(recipe, model, data, self.device)
        self.reached = Reached()
        self.mean: WeightMean | None = None  # of the current stage
        self.step_seconds = 0.0  # of this stage, on average, without its first step
        self.watch, self.look_at = watch, time.monotonic() + LOOK_SECONDS
        self.stage_seconds = stage_seconds

    def run(self, *, minutes: float | None = None) -> bool:
        """Train to the end (True), or until `minutes` have passed (False); call again to continue."""
        self.deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
        saved = self._load()
        while self.reached.stage < len(self.recipe.stages):
            if not self._run_stage(self.recipe.stages[self.reached.stage], saved):
                return False
            saved = None
            self.reached = Reached(self.reached.stage + 1, left_out=self.reached.left_out)
            self._save()
        return True

    def batches(self, cuts: Cuts | None, seed: int) -> Batches:
        """To learn from."""
        return self.reader.batches(self.split.train, cuts, seed, drop_last=True)

    def _run_stage(self, stage: Stage, saved: dict[str, Any] | None) -> bool:
        """Run or continue a stage. Return False if the deadline ends it early."""
        processes = self.processes
        run = StageRun.begin(self.model, stage, self.recipe, processes, self.reader.autocast, saved)
        self.mean = run.mean
        batches = self.batches(stage.cuts, self.recipe.seed * 1000 + self.reached.stage)
        if stage.cuts is not None and stage.cuts.agreement:
            batches.own_lengths = self._own_lengths(stage, run.objective)
        per_epoch = max(1, len(batches.plan(0)) // self.together)
        steps = max(1, round(stage.epochs * per_epoch))
        clock = StageClock(steps, self.reached.step, StepLimit(steps, self.stage_seconds))
        self.figures(
            f"stage {stage.name}: {steps} steps of {self._step_slots} slots, "
            f"{sum(p.numel() for p in run.learner.learning) / 1e6:.1f}M parameters learn"
        )
        for step, share in self._numbered(batches, per_epoch, self.reached.step, steps):
            results = self._learn(stage, run, clock, step, share)
            self._show(stage, run, clock, results)
            ends = self._judge_when_due(stage, run, clock)
            if (
                self.watch
                and processes.first
                and not processes.divides
                and (ends or clock.now >= self.look_at)
            ):
                clock.limit.reserve(self._look(self.watch, stage, run.model))
            stops = processes.any(clock.now > self.deadline)
            due = processes.any(clock.save_is_due(self.recipe.save_minutes) and not run.faults)
            if due or stops or ends:
                self._save(run)
                clock.saved_at = clock.now
            if stops or ends:
                self.mean = run.end(self.model)
            if ends:
                return True
            if stops:
                self.report(
                    f"stopped after {stage.name} step {step + 1} of {clock.steps}: run again to go on"
                )
                return False
        return True

    @property
    def _step_slots(self) -> int:
        return self.together * self.recipe.rows * self.recipe.row_slots

    def _learn(
        self, stage: Stage, run: StageRun, clock: StageClock, step: int, share: Iterator[TrainingBatch]
    ) -> dict[str, Any]:
        """Take one step and return its metrics. Five faulty steps in a row are an error."""
        run.mean.begins = clock.steps - round(stage.average * clock.steps)
        set_rate(run.learner.optimizers, schedule(step, clock.steps, stage.warmup, stage.final_rate))
        began = time.monotonic()
        done = run.learner.step(share, self.together // self.processes.count)
        run.faults = run.faults + 1 if done.fault else 0
        if run.faults == MOST_FAULTS:
            raise HamburgerError(
                f"{self.out}: no finite loss and gradient for five steps: lower the learning rate and "
                "choose another `out`"
            )
        if done.fault:
            self.reached.left_out += 1
            self.report(
                f"step {step + 1}: {done.fault}; this batch is left out ({self.reached.left_out} so far)"
            )
        else:
            run.mean.add(step)
            run.window.add(done.results, done.tokens)
        self.reached.step = step + 1
        clock.count(began)
        self.step_seconds = clock.step_seconds
        return done.results

    def _show(self, stage: Stage, run: StageRun, clock: StageClock, results: dict[str, Any]) -> None:
        """Report progress after every step, and the metrics of the last steps every SHOW_SECONDS."""
        if self.progress and self.processes.first:
            self.progress(stage.name, clock.done, clock.steps, clock.seconds_left, self.answers)
        if clock.now - clock.shown_at <= SHOW_SECONDS and not clock.ended:
            return
        pace, minutes = self._pace(stage, run, results), clock.seconds_left / 60
        self.figures(f"{stage.name} {clock.done}/{clock.steps}  {run.window}  {pace}  {minutes:.1f} min left")
        self._log("train", stage, run.window.means())
        run.window, clock.shown_at = Totals(), clock.now
        give_back_memory()

    def _judge_when_due(self, stage: Stage, run: StageRun, clock: StageClock) -> bool:
        """Judge held-out text at the stage's end and every `judge_every` steps. Return whether it ends."""
        ends = clock.ended
        if ends:
            run.mean.exchange()  # the stage ends with the mean weights
            self._judge(stage, run)
        elif clock.done % self.recipe.judge_every == 0:
            with run.mean.in_place():
                ends = self._judge(stage, run)
            if ends:
                self.report(f"{stage.name}: held-out text is read no better any more")
        if ends:
            run.best.restore()
        return ends

    def _own_lengths(self, stage: Stage, objective: Objective) -> npt.NDArray[np.int8]:
        """Return the model's own group sizes, read once when the stage begins; a continued run loads them."""
        path = self.out / f"own-lengths-{stage.name}.npy"
        if self.reached.step and path.exists():
            stored: npt.NDArray[np.int8] = np.load(path, allow_pickle=False)
            return stored
        if self.processes.divides:
            raise ConfigError(
                f"recipe.stages {stage.name!r}: cuts.agreement reads with all weights: train without --divide"
            )
        self.figures(f"stage {stage.name}: how would the model group its training text? ...")
        with self.reader.autocast():
            lengths = own_lengths(objective, self.reader.batches(self.split.train, None, 0), self.device)
        if self.processes.first:
            with write_atomically(path) as temporary, open(temporary, "wb") as file:
                np.save(file, lengths)
        return lengths

    def _numbered(
        self, batches: Batches, per_epoch: int, start: int, steps: int
    ) -> Iterator[tuple[int, Iterator[TrainingBatch]]]:
        """Yield (step, this process's batches) from `start` on; batches rotate over processes."""
        step = start
        while step < steps:
            plan = batches.plan(step // per_epoch)
            for within in range(step % per_epoch, min(per_epoch, steps - step + step % per_epoch)):
                # epochs differ by a few batches, since each has new cuts
                first = within * self.together + self.processes.index
                turns = range(first, (within + 1) * self.together, self.processes.count)
                yield step, (batches.build(plan[turn % len(plan)]).to(self.device) for turn in turns)
                step += 1

    def judge(
        self, objective: Objective, cuts: Cuts | None, questions: list[int] | None = None
    ) -> dict[str, float]:
        """Return metrics on held-out questions, or on others that are not trained on."""
        return self.reader.means(objective, self.split.held_out if questions is None else questions, cuts)

    def _judge(self, stage: Stage, run: StageRun) -> bool:
        """Judge held-out text, and return whether to stop.

        The calibration's questions decide that, so that held-out figures come from text that decided nothing.
        """
        own = dataclasses.replace(stage.loss, first=stage.loss.first or 1.0)  # without the micro decoder
        with run.objective.weighing(LossWeights() if stage.loss.micro else own):
            for kind, cuts in {"plain": None, "merged": judging_cuts(stage.cuts)}.items():
                if kind == "merged" and cuts is None:
                    continue
                means = self.judge(run.objective, cuts)
                self.figures(f"  held out, {kind}: " + "  ".join(f"{k} {v:.3f}" for k, v in means.items()))
                self._log(f"held_out_{kind}", stage, means)
            if not run.best.patience:
                return False
            means = self.judge(run.objective, judging_cuts(stage.cuts), self.split.calibration)
        loss = sum(means.get(name, 0.0) for name in ("first_loss", "micro_loss"))
        return run.best.look(loss)

    def _look(self, watch: Watch, stage: Stage, model: Hamburger) -> float:
        """Measure the model by its watch, and return the seconds that this took."""
        began = time.monotonic()
        self.answers = means = watch(model)
        told = "  ".join(f"{name} {mean:.3f}" for name, mean in means.items())
        self.figures(f"  held-out prompts, answered by greedy decoding: {told}")
        self._log("answers", stage, means)
        took = time.monotonic() - began
        self.look_at = time.monotonic() + max(LOOK_SECONDS, took / LOOK_SHARE)
        return took

    def _pace(self, stage: Stage, run: StageRun, results: dict[str, Any]) -> str:
        """Return slots a second. Where the base learns, add its products' share of the machine's peak."""
        slots = self._step_slots
        told = f"{slots / self.step_seconds:.0f} slots/s"
        if "base" not in stage.learns or self.processes.count > 1:
            return told
        scored = float(results["first_loss"][1]) if "first_loss" in results else 0.0
        half = precision_of(self.recipe, self.device.type) == "bf16"
        peak = product_rate(self.device.type, torch.bfloat16 if half else torch.float32)
        work = base_work(run.model, stage, slots, scored)
        return f"{told} ({work / self.step_seconds / peak:.0%} of this machine's peak)"

    def calibrate(self) -> StopCalibration:
        """Fit the stop head's scale and offset on calibration conversations; judge on held-out ones."""
        return self.reader.calibrate(self.split)

    def figures(self, line: str) -> None:
        """Report a line of figures, unless `progress` replaces it."""
        if self.progress is None:
            self.report(line)

    # -- files -----------------------------------------------------------------------------------------

    def _log(self, kind: str, stage: Stage, means: dict[str, float]) -> None:
        if self.processes.first:
            append_metrics(self.out, kind, stage.name, self.reached.step, means)

    def _save(self, run: StageRun | None = None) -> None:
        """Save; `run` is the current stage, None between stages."""
        learned = run.state() if run else {"model": learned_state(self.model), "optimizers": []}
        if self.processes.first:
            save_state(self.out, self.recipe, self._surroundings(), self.reached, learned)

    def _load(self) -> dict[str, Any] | None:
        state = load_state(self.out, self.recipe, self._surroundings())
        if state is None:
            return None
        self.reached, saved = state
        for stage in self.recipe.stages[: self.reached.stage]:
            prepare(self.model, stage, bf16=rounds_base(self.recipe, self.device.type))
        if self.reached.stage == len(self.recipe.stages):
            self.model.load_state_dict(saved["model"], strict=False)
        return saved

    def _surroundings(self) -> dict[str, Any]:
        """Return everything besides the recipe that changes a step."""
        return {"data": self.data.sha256, "batches a step": self.together}
