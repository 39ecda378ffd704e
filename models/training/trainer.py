"""Training a graft (and, if asked, its base) by a recipe: stages, checkpoints, resume, metrics."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hamburger_edge.errors import ConfigError, HamburgerError
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import without_cudnn_attention
from hamburger_edge.models.training.averaging import WeightMean
from hamburger_edge.models.training.batches import Batches, Cuts, DistilledData, TrainingBatch
from hamburger_edge.models.training.grafting import learned_state, prepare
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.optimizers import optimizers, set_rate
from hamburger_edge.models.training.own_groups import own_lengths
from hamburger_edge.models.training.processes import Processes
from hamburger_edge.models.training.recipe import Recipe, Stage
from hamburger_edge.models.training.stop_calibration import Calibration, apply, fit, measure, reliability
from hamburger_edge.support.strict import from_mapping

Report = Callable[[str], None]

# held-out text is merged by one rule for all models, so that figures compare: about 1.7 tokens a slot of a
# chat model's answers, which is denser than a young graft merges by itself
JUDGING_CUTS = Cuts(entropy=1.0, random=0.0, low=(0.2,), ratio=(0.5,))


def schedule(step: int, steps: int, warmup: float, final: float) -> float:
    """Linear warm-up, then cosine down to the share `final` of the peak."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    wave = math.cos(math.pi * (step - rise) / max(1, steps - rise))  # from 1 to -1
    return (1 + final) / 2 + (1 - final) / 2 * wave


class Totals:
    """Sums and counts of metrics."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.tokens = 0

    def add(self, results: dict[str, Tensor], tokens: int = 0) -> None:
        self.tokens += tokens
        for name, pair in results.items():
            self.sums[name] = self.sums[name] + pair.cpu() if name in self.sums else pair.cpu()

    def means(self) -> dict[str, float]:
        return {name: round(float(s / max(float(n), 1e-9)), 4) for name, (s, n) in self.sums.items()}

    def __str__(self) -> str:
        return "  ".join(f"{name} {mean:.3f}" for name, mean in self.means().items())


@dataclass
class Progress:
    """Where a run is; saved with every checkpoint."""

    stage: int = 0
    step: int = 0  # steps done within the stage
    best: dict[str, float] = field(default_factory=dict)  # by stage: lowest held-out loss


class Trainer:
    """Runs a recipe's stages; killed and run again, it goes on bit for bit (on a CPU) from its last save."""

    def __init__(
        self,
        recipe: Recipe,
        model: Hamburger,
        data: DistilledData,
        report: Report = print,
        device: str | None = None,  # None: the GPU if there is one
    ):
        without_cudnn_attention()
        self.recipe, self.model, self.data, self.processes = recipe, model, data, Processes()
        self.report: Report = report if self.processes.first else lambda line: None
        self.out = Path(recipe.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.split = data.split(recipe.held_out)
        if not self.split.train or not self.split.held_out or not self.split.calibration:
            raise ConfigError(f"{recipe.data}: too few conversations to hold any out: distill more tokens")
        own = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"  # each process has a GPU to itself
        self.device = torch.device(device or (own if torch.cuda.is_available() else "cpu"))
        self.progress = Progress()
        self.mean: WeightMean | None = None  # of the stage under way

    def run(self, *, minutes: float | None = None) -> bool:
        """Train to the end (True), or until `minutes` have passed (False); run again to go on."""
        self.deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
        saved = self._load()
        while self.progress.stage < len(self.recipe.stages):
            if not self._run_stage(self.recipe.stages[self.progress.stage], saved):
                return False
            saved = None
            self.progress.stage, self.progress.step = self.progress.stage + 1, 0
            self._save("last.pt", [])
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
        movers = optimizers(self.model, groups, self.recipe)
        if saved is not None:
            self.model.load_state_dict(saved["model"], strict=False)
            for mover, state in zip(movers, saved["optimizers"], strict=False):
                mover.load_state_dict(state)
        objective = Objective(self.model, stage.loss).to(self.device)
        step_function = self.processes.joined(objective)
        batches = self.batches(self.split.train, stage.cuts, self.recipe.seed * 1000 + self.progress.stage)
        if stage.cuts is not None and stage.cuts.agreement:
            batches.own_lengths = self._own_lengths(stage, objective)
        per_epoch = max(1, len(batches.plan(0)) // self.processes.count)
        steps = max(1, round(stage.epochs * per_epoch))
        learning = [p for group in groups for p in group["params"]]
        mean = self.mean = WeightMean(learning, begins=steps - round(stage.average * steps))
        if saved is not None and "mean" in saved:
            mean.load(saved["mean"])
        self.report(
            f"stage {stage.name}: {steps} steps of {self.recipe.rows * self.recipe.row_slots} slots, "
            f"{sum(p.numel() for p in learning) / 1e6:.1f}M parameters learn"
        )
        window, began, shown, saved_at = Totals(), time.monotonic(), time.monotonic(), time.monotonic()
        start, bad = self.progress.step, 0
        for step, batch in self._numbered(batches, per_epoch, start, steps):
            set_rate(movers, schedule(step, steps, stage.warmup, stage.final_rate))
            with self.autocast():
                results = step_function(batch.to(self.device))
            loss = results.pop("loss")
            bad = bad + 1 if self.processes.any(not torch.isfinite(loss), self.device) else 0
            if bad == 5:
                raise HamburgerError(
                    f"{self.out}: no finite loss for five steps: lower the learning rate and choose "
                    "another `out`"
                )
            if not bad:
                self.model.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(learning, self.recipe.clip)
                for mover in movers:
                    mover.step()
                mean.add(step)
                window.add(results, tokens=int((batch.groups.target_sizes > 0).sum()))
            else:
                self.report(f"step {step + 1}: the loss is {loss.item()}; this batch is left out")
            self.progress.step = step + 1
            now, last = time.monotonic(), step + 1 == steps
            if now - shown > 15 or last:
                left = (steps - step - 1) * (now - began) / (step + 1 - start)
                rate = window.tokens / (now - shown)
                self.report(
                    f"{stage.name} {step + 1}/{steps}  {window}  {rate:.0f} tok/s  {left / 60:.1f} min left"
                )
                self._log("train", stage, window.means())
                window, shown = Totals(), now
            if last:
                mean.exchange()  # the stage ends with them
                self._judge(stage, objective)
            elif (step + 1) % self.recipe.judge_every == 0:
                with mean.in_place():
                    self._judge(stage, objective)
            over = self.processes.any(now > self.deadline, self.device)
            if now - saved_at > 60 * self.recipe.save_minutes or over or last:
                self._save("last.pt", movers, mean)
                saved_at = now
            if over and not last:
                self.report(f"stopped after {stage.name} step {step + 1} of {steps}: run again to go on")
                return False
        return True

    def _own_lengths(self, stage: Stage, objective: Objective) -> npt.NDArray[np.int8]:
        """Read once, when the stage begins; a run that goes on takes what it found then."""
        path = self.out / f"own-lengths-{stage.name}.npy"
        if self.progress.step and path.exists():
            found: npt.NDArray[np.int8] = np.load(path, allow_pickle=False)
            return found
        self.report(f"stage {stage.name}: how would the model group its training text? ...")
        with self.autocast():
            lengths = own_lengths(objective, self.batches(self.split.train, None, 0), self.device)
        if self.processes.first:
            temporary = self.out / f".{path.stem}.{os.getpid()}.npy"
            np.save(temporary, lengths)
            os.replace(temporary, path)
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
                turn = within * self.processes.count + self.processes.rank
                yield step, batches.build(plan[turn % len(plan)])
                step += 1

    @torch.no_grad()
    def judge(self, objective: Objective, cuts: Cuts | None) -> dict[str, float]:
        """Metrics on held-out questions."""
        totals = Totals()
        batches = self.batches(self.split.held_out, cuts, seed=1)
        for rows in batches.plan(0)[: self.recipe.judge_batches]:
            with self.autocast():
                results = objective(batches.build(rows).to(self.device))
            results.pop("loss")
            totals.add(results)
        return totals.means()

    def _judge(self, stage: Stage, objective: Objective) -> None:
        own = dataclasses.replace(stage.loss, first=stage.loss.first or 1.0)  # without the micro decoder
        everything = Objective(self.model, LossWeights() if stage.loss.micro else own).to(self.device)
        for kind, cuts in {"plain": None, "merged": JUDGING_CUTS if stage.cuts else None}.items():
            if kind == "merged" and cuts is None:
                continue
            means = self.judge(everything, cuts)
            self.report(f"  held out, {kind}: " + "  ".join(f"{k} {v:.3f}" for k, v in means.items()))
            self._log(f"held_out_{kind}", stage, means)
        loss = means["first_loss"] + means.get("micro_loss", 0.0)
        if loss < self.progress.best.get(stage.name, math.inf):
            self.progress.best[stage.name] = loss
            self._save("best.pt", [])

    @torch.no_grad()
    def calibrate(self) -> Calibration:
        """Fit the stop head's scale and offset on the conversations kept for it; judge on held-out ones."""
        objective = Objective(self.model, LossWeights()).to(self.device).eval()

        def measured(numbers: list[int]) -> tuple[Tensor, Tensor]:
            batches = self.batches(numbers, JUDGING_CUTS, seed=2)
            with self.autocast():
                return measure(objective, (batches.build(rows).to(self.device) for rows in batches.plan(0)))

        scale, offset = fit(*measured(self.split.calibration))
        before = reliability(*measured(self.split.held_out))
        apply(self.model, scale, offset)
        return Calibration(scale, offset, before, reliability(*measured(self.split.held_out)))

    # -- files -----------------------------------------------------------------------------------------

    def _log(self, kind: str, stage: Stage, means: dict[str, float]) -> None:
        if self.processes.first:
            with open(self.out / "metrics.jsonl", "a", encoding="utf-8") as file:
                line = {"kind": kind, "stage": stage.name, "step": self.progress.step, **means}
                file.write(json.dumps(line) + "\n")

    def _save(self, name: str, movers: list[torch.optim.Optimizer], mean: WeightMean | None = None) -> None:
        if not self.processes.first:
            return
        state = {
            "recipe": dataclasses.asdict(self.recipe),
            **self._surroundings(),
            "progress": vars(self.progress),
            "model": learned_state(self.model),
            "optimizers": [mover.state_dict() for mover in movers],
            **({"mean": mean.state()} if mean else {}),
        }
        temporary = self.out / f".{name}.{os.getpid()}"
        torch.save(state, temporary)
        os.replace(temporary, self.out / name)

    def _load(self) -> dict[str, Any] | None:
        path = self.out / "last.pt"
        if not path.exists():
            return None
        try:
            saved: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
            made_by, progress = saved["recipe"], Progress(**saved["progress"])
        except (OSError, MemoryError):
            raise
        except Exception as error:  # torch's, pickle's and zip's errors share no base class
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise ConfigError(
                f"{path}: damaged, or of another version ({reason[0][:200]}): choose another `out` or delete "
                "it to begin this run again"
            ) from error
        if not self._by_this_recipe(made_by):
            raise ConfigError(
                f"{path}: was made by another recipe; choose another `out` or delete the folder"
            )
        for what, now in self._surroundings().items():
            if saved.get(what, now) != now:
                raise ConfigError(
                    f"{path}: was made with other {what}; choose another `out` or delete the folder"
                )
        self.progress = progress
        for stage in self.recipe.stages[: self.progress.stage]:
            prepare(self.model, stage, bf16=self.recipe.rounds_base)
        if self.progress.stage == len(self.recipe.stages):
            self.model.load_state_dict(saved["model"], strict=False)
        return saved

    def _surroundings(self) -> dict[str, Any]:
        """What changes what a step is, beside the recipe."""
        return {"data": self.data.sha256, "processes": self.processes.count}

    def _by_this_recipe(self, made_by: Any) -> bool:
        """Keys that recipes have only got since then count as left out."""
        try:
            return bool(from_mapping(Recipe, made_by, "recipe") == self.recipe)
        except ConfigError:
            return False
