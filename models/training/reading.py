"""Held-out questions: metrics of the model on them, and calibration."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.training.data.batches import Batches, Cuts, DistilledData
from hamburger_edge.models.training.data.split import Split
from hamburger_edge.models.training.metrics import Totals
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.speed import autocast
from hamburger_edge.models.training.stop_calibration import (
    StopCalibration,
    apply_to_stop_head,
    fit_stop_logits,
    measure,
    reliability,
)
from hamburger_edge.models.training.training_recipe import Recipe

# held-out text is merged by one rule for all models, so that figures are comparable: 1.7 tokens per slot of a
# chat model's answers, more than a young graft merges itself
JUDGING_CUTS = Cuts(entropy=1.0, random=0.0, low=(0.2,), ratio=(0.5,))


def judging_cuts(cuts: Cuts | None) -> Cuts | None:
    """Return the cuts for judging; a stage with random cuts only may have text without scores."""
    if cuts is None or cuts.entropy or cuts.agreement:
        return cuts and JUDGING_CUTS
    return Cuts(entropy=0.0, random=1.0)


class Reader:
    """Text for a model, laid out as in the recipe."""

    def __init__(self, recipe: Recipe, model: Hamburger, data: DistilledData, device: torch.device):
        self.recipe, self.model, self.data, self.device = recipe, model, data, device

    def batches(
        self, numbers: list[int], cuts: Cuts | None, seed: int, *, drop_last: bool = False
    ) -> Batches:
        """Yield batches of these conversations."""
        config = self.model.config
        return Batches(
            self.data,
            numbers,
            max_group_tokens=config.max_group_tokens,
            draft_vocab=self.model.draft_vocab.cpu().numpy() if config.draft_vocab_size else None,
            vocab_size=config.base.vocab_size,
            rows=self.recipe.rows,
            row_slots=self.recipe.row_slots,
            cuts=cuts,
            seed=seed,
            drop_last=drop_last,
        )

    def autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.recipe, self.device.type)

    @torch.no_grad()
    def means(self, objective: Objective, questions: list[int], cuts: Cuts | None) -> dict[str, float]:
        """Return the objective's metrics on the first batches."""
        totals = Totals()
        batches = self.batches(questions, cuts, seed=1)
        for rows in itertools.islice(batches.laid_out(0), self.recipe.judge_batches):
            with self.autocast():
                results = objective(batches.build(rows).to(self.device))
            results.pop("loss")
            totals.add(results)
        return totals.means()

    @torch.no_grad()
    def calibrate(self, split: Split) -> StopCalibration:
        """Fit the stop head's scale and offset, and fold them into it."""
        objective = Objective(self.model, LossWeights()).to(self.device).eval()

        def measured(numbers: list[int]) -> tuple[Tensor, Tensor]:
            batches = self.batches(numbers, JUDGING_CUTS, seed=2)
            with self.autocast():
                return measure(objective, (batches.build(rows).to(self.device) for rows in batches.plan(0)))

        scale, offset = fit_stop_logits(*measured(split.calibration))
        before = reliability(*measured(split.held_out))
        apply_to_stop_head(self.model, scale, offset)
        return StopCalibration(scale, offset, before, reliability(*measured(split.held_out)))
