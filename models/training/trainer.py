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
from hamburger_edge.models.training.speed import base_work, product_rate
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
        stage_seconds: float = math.inf,  # a stage has fewer steps if these do not suffice; one process only
    ):
        without_cudnn_attention()
        self.recipe, self.model, self.data = recipe, model, data
        self.processes = Processes(divide=divide, device=device)
        self.report: LogCallback = report if self.processes.first else lambda line: None
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
        processes = self.processes
        run = StageRun.begin(self.model, stage, self.recipe, processes, self.reader.autocast, saved)
        batches = self.batches(stage.cuts, self.recipe.seed * 1000 + self.reached.stage)
        if stage.cuts is not None and stage.cuts.agreement:
            batches.own_lengths = self._own_lengths(stage, run.objective)
        per_epoch = max(1, len(batches.plan(0)) // self.together)
        steps = max(1, round(stage.epochs * per_epoch))
        limit = StepLimit(steps, self.stage_seconds)
        self.mean = run.mean
        slots = self.together * self.recipe.rows * self.recipe.row_slots
        self.report(
            f"stage {stage.name}: {steps} steps of {slots} slots, "
            f"{sum(p.numel() for p in run.learner.learning) / 1e6:.1f}M parameters learn"
        )
        window, shown, saved_at = Totals(), time.monotonic(), time.monotonic()
        start, bad, spent = self.reached.step, 0, 0.0
        for step, share in self._numbered(batches, per_epoch, start, steps):
            run.mean.begins = steps - round(stage.average * steps)
            set_rate(run.learner.optimizers, schedule(step, steps, stage.warmup, stage.final_rate))
            began = time.monotonic()
            done = run.learner.step(share, self.together // processes.count)
            bad = bad + 1 if done.fault else 0
            if bad == 5:
                raise HamburgerError(
                    f"{self.out}: no finite loss and gradient for five steps: lower the learning rate and "
                    "choose another `out`"
                )
            if not bad:
                run.mean.add(step)
                window.add(done.results, done.tokens)
            else:
                self.reached.left_out += 1
                self.report(
                    f"step {step + 1}: {done.fault}; this batch is left out ({self.reached.left_out} so far)"
                )
            self.reached.step = step + 1
            now = time.monotonic()
            spent = 0.0 if step == start else spent + now - began
            self.step_seconds = spent / (step - start) if step > start else now - began
            steps = steps if step == start else limit.after(step + 1, self.step_seconds)
            last = step + 1 == steps
            if now - shown > 15 or last:
                left = (steps - step - 1) * self.step_seconds
                pace = self._pace(stage, run, slots, done.results)
                self.report(f"{stage.name} {step + 1}/{steps}  {window}  {pace}  {left / 60:.1f} min left")
                self._log("train", stage, window.means())
                window, shown = Totals(), now
                give_back_memory()
            if last:
                run.mean.exchange()  # the stage ends with them
                self._judge(stage, run)
            elif (step + 1) % self.recipe.judge_every == 0:
                with run.mean.in_place():
                    last = self._judge(stage, run)
                if last:
                    self.report(f"{stage.name}: held-out text is read no better any more")
            if last:
                run.best.restore()
            if self.watch and processes.first and not processes.divides and (last or now >= self.look_at):
                self._look(self.watch, stage, run.model)
            over = processes.any(now > self.deadline)
            due = processes.any(now - saved_at > 60 * self.recipe.save_minutes and not bad)
            if due or over or last:
                self._save(run)
                saved_at = now
            if last or over:
                self.mean = run.end(self.model)
            if last:
                return True
            if over:
                self.report(f"stopped after {stage.name} step {step + 1} of {steps}: run again to go on")
                return False
        return True

    def _own_lengths(self, stage: Stage, objective: Objective) -> npt.NDArray[np.int8]:
        """Return the model's own group sizes, read once when the stage begins; a continued run loads them."""
        path = self.out / f"own-lengths-{stage.name}.npy"
        if self.reached.step and path.exists():
            found: npt.NDArray[np.int8] = np.load(path, allow_pickle=False)
            return found
        if self.processes.divides:
            raise ConfigError(
                f"recipe.stages {stage.name!r}: cuts.agreement reads with all weights: train without --divide"
            )
        self.report(f"stage {stage.name}: how would the model group its training text? ...")
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
                self.report(f"  held out, {kind}: " + "  ".join(f"{k} {v:.3f}" for k, v in means.items()))
                self._log(f"held_out_{kind}", stage, means)
            if not run.best.patience:
                return False
            means = self.judge(run.objective, judging_cuts(stage.cuts), self.split.calibration)
        loss = sum(means.get(name, 0.0) for name in ("first_loss", "micro_loss"))
        return run.best.look(loss)

    def _look(self, watch: Watch, stage: Stage, model: Hamburger) -> None:
        began = time.monotonic()
        means = watch(model)
        told = "  ".join(f"{name} {mean:.3f}" for name, mean in means.items())
        self.report(f"  held-out prompts, answered by greedy decoding: {told}")
        self._log("answers", stage, means)
        took = time.monotonic() - began
        self.look_at = time.monotonic() + max(LOOK_SECONDS, took / LOOK_SHARE)

    def _pace(self, stage: Stage, run: StageRun, slots: int, results: dict[str, Any]) -> str:
        """Return slots a second. Where the base learns, add its products' share of the machine's peak."""
        told = f"{slots / self.step_seconds:.0f} slots/s"
        if "base" not in stage.learns or self.processes.count > 1:
            return told
        scored = float(results["first_loss"][1]) if "first_loss" in results else 0.0
        dtype = torch.bfloat16 if self.recipe.precision == "bf16" else torch.float32
        peak = product_rate(self.device.type, dtype)
        work = base_work(run.model, stage, slots, scored)
        return f"{told} ({work / self.step_seconds / peak:.0%} of this machine's peak)"

    def calibrate(self) -> StopCalibration:
        """Fit the stop head's scale and offset on calibration conversations; judge on held-out ones."""
        return self.reader.calibrate(self.split)

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
        found = load_state(self.out, self.recipe, self._surroundings())
        if found is None:
            return None
        self.reached, saved = found
        for stage in self.recipe.stages[: self.reached.stage]:
            prepare(self.model, stage, bf16=self.recipe.rounds_base)
        if self.reached.stage == len(self.recipe.stages):
            self.model.load_state_dict(saved["model"], strict=False)
        return saved

    def _surroundings(self) -> dict[str, Any]:
        """Return everything besides the recipe that changes a step."""
        return {"data": self.data.sha256, "batches a step": self.together}
