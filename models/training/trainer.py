"""Training a graft (and, if asked, its base) by a recipe: stages, checkpoints, resume, metrics."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hamburger_edge.errors import ConfigError, HamburgerError, require
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import without_cudnn_attention
from hamburger_edge.models.training.averaging import WeightMean
from hamburger_edge.models.training.batches import Batches, Cuts, DistilledData, TrainingBatch
from hamburger_edge.models.training.early_stopping import BestWeights
from hamburger_edge.models.training.grafting import learned_state, prepare
from hamburger_edge.models.training.metrics import Totals, append_metrics
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.optimizers import make_optimizers, schedule, set_rate
from hamburger_edge.models.training.own_groups import own_lengths
from hamburger_edge.models.training.recipe import Recipe, Stage
from hamburger_edge.models.training.run_state import Reached, load_state, save_state
from hamburger_edge.models.training.stop_calibration import (
    StopCalibration,
    apply_to_stop_head,
    fit_stop_logits,
    measure,
    reliability,
)
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.progress import LogCallback

# held-out text is merged by one rule for all models, so that figures compare: about 1.7 tokens a slot of a
# chat model's answers, which is denser than a young graft merges by itself
JUDGING_CUTS = Cuts(entropy=1.0, random=0.0, low=(0.2,), ratio=(0.5,))


def judging_cuts(cuts: Cuts | None) -> Cuts | None:
    """A stage that cuts at random alone may do so because nobody has scored its text yet."""
    if cuts is None or cuts.entropy or cuts.agreement:
        return cuts and JUDGING_CUTS
    return Cuts(entropy=0.0, random=1.0)


def accelerator() -> Any:
    """Which of the processes that `accelerate launch` started this is, or the only one; its device; and what
    keeps their gradients, and their decisions, the same. Each has a copy of all weights."""
    accelerate = require("accelerate", "train")
    # a batch need not reach every parameter: without merged slots, the embedder is never asked
    options = accelerate.DistributedDataParallelKwargs(find_unused_parameters=True)
    made = accelerate.Accelerator(device_placement=False, kwargs_handlers=[options])
    kind = str(made.distributed_type.value)
    if kind != "NO" and not kind.startswith("MULTI_"):
        raise ConfigError(f"training divides batches, not weights, among processes: launch without {kind}")
    return made


class Trainer:
    """Runs a recipe's stages; killed and run again, it goes on bit for bit (on a CPU) from its last save."""

    def __init__(
        self,
        recipe: Recipe,
        model: Hamburger,
        data: DistilledData,
        report: LogCallback = print,
        device: str | None = None,  # None: the GPU if there is one
    ):
        without_cudnn_attention()
        self.recipe, self.model, self.data = recipe, model, data
        self.accelerator = accelerator()
        self.report: LogCallback = report if self.accelerator.is_main_process else lambda line: None
        self.out = Path(recipe.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.split = data.split(recipe.held_out)
        if not self.split.train or not self.split.held_out or not self.split.calibration:
            raise ConfigError(f"{recipe.data}: too few conversations to hold any out: distill more tokens")
        self.device = torch.device(device) if device else self.accelerator.device
        self.reached = Reached()
        self.mean: WeightMean | None = None  # of the stage under way
        self.step_seconds = 0.0  # of this stage, on average

    def run(self, *, minutes: float | None = None) -> bool:
        """Train to the end (True), or until `minutes` have passed (False); run again to go on."""
        self.deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
        saved = self._load()
        while self.reached.stage < len(self.recipe.stages):
            if not self._run_stage(self.recipe.stages[self.reached.stage], saved):
                return False
            saved = None
            self.reached = Reached(self.reached.stage + 1, left_out=self.reached.left_out)
            self._save([])
        return True

    def batches(self, numbers: list[int], cuts: Cuts | None, seed: int) -> Batches:
        config = self.model.config
        return Batches(
            self.data,
            numbers,
            max_steps=config.max_steps,
            shortlist=self.model.shortlist.cpu().numpy() if config.shortlist_size else None,
            vocab_size=config.base.vocab_size,
            rows=self.recipe.rows,
            row_slots=self.recipe.row_slots,
            cuts=cuts,
            seed=seed,
        )

    def autocast(self) -> AbstractContextManager[Any]:
        if self.recipe.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _run_stage(self, stage: Stage, saved: dict[str, Any] | None) -> bool:
        groups = prepare(self.model, stage, bf16=self.recipe.rounds_base)
        self.model.to(self.device)
        optimizers = make_optimizers(self.model, groups, self.recipe)
        if saved is not None:
            self.model.load_state_dict(saved["model"], strict=False)
            for optimizer, state in zip(optimizers, saved["optimizers"], strict=False):
                optimizer.load_state_dict(state)
        objective = Objective(self.model, stage.loss).to(self.device)
        self.accelerator.free_memory()  # of the stage before
        step_function, *optimizers = self.accelerator.prepare(objective, *optimizers)
        batches = self.batches(self.split.train, stage.cuts, self.recipe.seed * 1000 + self.reached.stage)
        if stage.cuts is not None and stage.cuts.agreement:
            batches.own_lengths = self._own_lengths(stage, objective)
        per_epoch = max(1, len(batches.plan(0)) // self.accelerator.num_processes)
        steps = max(1, round(stage.epochs * per_epoch))
        learning = [p for group in groups for p in group["params"]]
        mean = self.mean = WeightMean(learning, begins=steps - round(stage.average * steps))
        best = BestWeights(learning, self.recipe.patience)
        if saved is not None and "mean" in saved:
            mean.load(saved["mean"])
        if saved is not None and "best" in saved:
            best.load(saved["best"])
        self.report(
            f"stage {stage.name}: {steps} steps of {self.recipe.rows * self.recipe.row_slots} slots, "
            f"{sum(p.numel() for p in learning) / 1e6:.1f}M parameters learn"
        )
        window, began, shown, saved_at = Totals(), time.monotonic(), time.monotonic(), time.monotonic()
        start, bad = self.reached.step, 0
        for step, batch in self._numbered(batches, per_epoch, start, steps):
            set_rate(optimizers, schedule(step, steps, stage.warmup, stage.final_rate))
            with self.autocast():
                results = step_function(batch.to(self.device))
            fault = self._learn(results.pop("loss"), learning, optimizers)
            bad = bad + 1 if fault else 0
            if bad == 5:
                raise HamburgerError(
                    f"{self.out}: no finite loss and gradient for five steps: lower the learning rate and "
                    "choose another `out`"
                )
            if not bad:
                mean.add(step)
                window.add(results, tokens=int((batch.groups.target_sizes > 0).sum()))
            else:
                self.reached.left_out += 1
                self.report(
                    f"step {step + 1}: {fault}; this batch is left out ({self.reached.left_out} so far)"
                )
            self.reached.step = step + 1
            now, last = time.monotonic(), step + 1 == steps
            self.step_seconds = (now - began) / (step + 1 - start)
            if now - shown > 15 or last:
                left = (steps - step - 1) * self.step_seconds
                rate = window.tokens / (now - shown)
                self.report(
                    f"{stage.name} {step + 1}/{steps}  {window}  {rate:.0f} tok/s  {left / 60:.1f} min left"
                )
                self._log("train", stage, window.means())
                window, shown = Totals(), now
            if last:
                mean.exchange()  # the stage ends with them
                self._judge(stage, objective, best)
            elif (step + 1) % self.recipe.judge_every == 0:
                with mean.in_place():
                    last = self._judge(stage, objective, best)
                if last:
                    self.report(f"{stage.name}: held-out text is read no better any more")
            if last:
                best.restore()
            over = self._any(now > self.deadline)
            if (now - saved_at > 60 * self.recipe.save_minutes and not bad) or over or last:
                self._save(optimizers, mean, best)
                saved_at = now
            if last:
                return True
            if over:
                self.report(f"stopped after {stage.name} step {step + 1} of {steps}: run again to go on")
                return False
        return True

    def _learn(self, loss: Tensor, learning: list[Tensor], optimizers: list[Any]) -> str | None:
        """One step of all optimizers; or none, and why: what is not finite would stay in weights, moments and
        means for good."""
        if self._any(not torch.isfinite(loss)):
            return f"the loss is {loss.item()}"
        self.model.zero_grad(set_to_none=True)
        self.accelerator.backward(loss)
        norm = self.accelerator.clip_grad_norm_(learning, self.recipe.clip)
        if self._any(not torch.isfinite(norm)):
            self.model.zero_grad(set_to_none=True)
            return f"the gradient's norm is {norm.item()}"
        for optimizer in optimizers:
            optimizer.step()
        return None

    def _own_lengths(self, stage: Stage, objective: Objective) -> npt.NDArray[np.int8]:
        """Read once, when the stage begins; a run that goes on takes what it found then."""
        path = self.out / f"own-lengths-{stage.name}.npy"
        if self.reached.step and path.exists():
            found: npt.NDArray[np.int8] = np.load(path, allow_pickle=False)
            return found
        self.report(f"stage {stage.name}: how would the model group its training text? ...")
        with self.autocast():
            lengths = own_lengths(objective, self.batches(self.split.train, None, 0), self.device)
        if self.accelerator.is_main_process:
            with write_atomically(path) as temporary, open(temporary, "wb") as file:
                np.save(file, lengths)
        return lengths

    def _numbered(
        self, batches: Batches, per_epoch: int, start: int, steps: int
    ) -> Iterator[tuple[int, TrainingBatch]]:
        """(step, batch) from `start` on; processes take turns."""
        step = start
        while step < steps:
            plan = batches.plan(step // per_epoch)
            for within in range(step % per_epoch, min(per_epoch, steps - step + step % per_epoch)):
                # epochs differ by a few batches, since each cuts anew
                turn = within * self.accelerator.num_processes + self.accelerator.process_index
                yield step, batches.build(plan[turn % len(plan)])
                step += 1

    @torch.no_grad()
    def judge(
        self, objective: Objective, cuts: Cuts | None, questions: list[int] | None = None
    ) -> dict[str, float]:
        """Metrics on held-out questions, or on others that are not trained on."""
        totals = Totals()
        batches = self.batches(self.split.held_out if questions is None else questions, cuts, seed=1)
        for rows in batches.plan(0)[: self.recipe.judge_batches]:
            with self.autocast():
                results = objective(batches.build(rows).to(self.device))
            results.pop("loss")
            totals.add(results)
        return totals.means()

    def _judge(self, stage: Stage, objective: Objective, best: BestWeights) -> bool:
        """Look at held-out text; whether it is time to stop, which is asked of the calibration's questions:
        figures of the held-out ones are to be of text that decided nothing."""
        own = dataclasses.replace(stage.loss, first=stage.loss.first or 1.0)  # without the micro decoder
        everything = Objective(self.model, LossWeights() if stage.loss.micro else own).to(self.device)
        for kind, cuts in {"plain": None, "merged": judging_cuts(stage.cuts)}.items():
            if kind == "merged" and cuts is None:
                continue
            means = self.judge(everything, cuts)
            self.report(f"  held out, {kind}: " + "  ".join(f"{k} {v:.3f}" for k, v in means.items()))
            self._log(f"held_out_{kind}", stage, means)
        if not best.patience:
            return False
        means = self.judge(everything, judging_cuts(stage.cuts), self.split.calibration)
        loss = sum(means.get(name, 0.0) for name in ("first_loss", "micro_loss"))
        return best.look(loss)

    @torch.no_grad()
    def calibrate(self) -> StopCalibration:
        """Fit the stop head's scale and offset on the conversations kept for it; judge on held-out ones."""
        objective = Objective(self.model, LossWeights()).to(self.device).eval()

        def measured(numbers: list[int]) -> tuple[Tensor, Tensor]:
            batches = self.batches(numbers, JUDGING_CUTS, seed=2)
            with self.autocast():
                return measure(objective, (batches.build(rows).to(self.device) for rows in batches.plan(0)))

        scale, offset = fit_stop_logits(*measured(self.split.calibration))
        before = reliability(*measured(self.split.held_out))
        apply_to_stop_head(self.model, scale, offset)
        return StopCalibration(scale, offset, before, reliability(*measured(self.split.held_out)))

    def leave(self) -> None:
        """Let the other processes go, all at one moment: what one still does would end with another."""
        if self.accelerator.num_processes > 1:
            self.accelerator.wait_for_everyone()
            self.accelerator.free_memory()
            self.accelerator.end_training()

    def _any(self, mine: bool) -> bool:
        """Whether it is so in any process: what one decides, all must, or they wait for its gradients."""
        if mine:
            self.accelerator.set_trigger()
        return bool(self.accelerator.check_trigger())

    # -- files -----------------------------------------------------------------------------------------

    def _log(self, kind: str, stage: Stage, means: dict[str, float]) -> None:
        if self.accelerator.is_main_process:
            append_metrics(self.out, kind, stage.name, self.reached.step, means)

    def _save(
        self,
        optimizers: list[torch.optim.Optimizer],
        mean: WeightMean | None = None,
        best: BestWeights | None = None,
    ) -> None:
        if self.accelerator.is_main_process:
            learned = {
                "model": learned_state(self.model),
                "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                **({"mean": mean.state()} if mean else {}),
                **({"best": best.state()} if best else {}),
            }
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
        """What changes what a step is, beside the recipe."""
        return {"data": self.data.sha256, "processes": self.accelerator.num_processes}
