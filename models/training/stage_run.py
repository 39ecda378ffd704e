"""A running stage: its parameters, optimizers and schedule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.training.grafting import learned_state, prepare
from hamburger_edge.models.training.metrics import Totals
from hamburger_edge.models.training.objective import Objective
from hamburger_edge.models.training.optimizers import make_optimizers
from hamburger_edge.models.training.speed import rounds_base
from hamburger_edge.models.training.training_recipe import Recipe, Stage
from hamburger_edge.models.training.updates.averaging import WeightMean
from hamburger_edge.models.training.updates.early_stopping import BestWeights
from hamburger_edge.models.training.updates.learning import Learner
from hamburger_edge.models.training.updates.processes import Processes, load_optimizer


@dataclass
class StageRun:
    model: Hamburger  # the trainer's, or with divided weights this process's part of a copy
    objective: Objective
    learner: Learner
    names: list[str]  # of trained parameters, in the order of the optimizers' groups
    mean: WeightMean
    best: BestWeights
    window: Totals = field(default_factory=Totals)  # metrics of the steps since the last report
    faults: int = 0  # faulty steps in a row, the last one included

    @classmethod
    def begin(
        cls,
        whole: Hamburger,
        stage: Stage,
        recipe: Recipe,
        processes: Processes,
        autocast: Callable[[], AbstractContextManager[Any]],
        saved: dict[str, Any] | None,
    ) -> StageRun:
        """Begin the stage, or continue a `saved` one, which may have had another number of processes."""
        groups = prepare(whole, stage, bf16=rounds_base(recipe, processes.device.type))
        called = {id(parameter): name for name, parameter in whole.named_parameters()}
        named = [[called[id(parameter)] for parameter in group["params"]] for group in groups]
        if saved is not None:
            whole.load_state_dict(saved["model"], strict=False)
        model = processes.own(whole)
        objective = Objective(model, stage.loss)
        prepared = processes.prepare(objective)
        # dividing replaces them
        there = dict(model.named_parameters())
        groups = [
            {**group, "params": [there[name] for name in names]}
            for group, names in zip(groups, named, strict=True)
        ]
        learning: list[Tensor] = [parameter for group in groups for parameter in group["params"]]
        optimizers = make_optimizers(model, groups, recipe)
        mean = WeightMean(learning, begins=0)
        best = BestWeights(learning, recipe.patience)
        if saved is not None:
            for optimizer, state in zip(optimizers, saved["optimizers"], strict=False):
                load_optimizer(optimizer, state)
            if "mean" in saved:
                mean.load(saved["mean"])
            if "best" in saved:
                best.load(saved["best"])
        learner = Learner(processes, prepared, learning, optimizers, autocast, recipe.clip)
        return cls(model, objective, learner, [name for names in named for name in names], mean, best)

    def state(self) -> dict[str, Any]:
        """Return the state that `begin` continues, in the first process; all processes must call it."""
        return self.learner.processes.whole(
            {
                "model": learned_state(self.model),
                "optimizers": [optimizer.state_dict() for optimizer in self.learner.optimizers],
                "mean": self.mean.state(),
                "best": self.best.state(),
            }
        )

    def end(self, whole: Hamburger) -> WeightMean:
        """Copy the learned weights into the trainer's model; return the mean so far of its parameters."""
        if self.model is whole:
            return self.mean
        processes = self.learner.processes
        whole.load_state_dict(processes.whole(dict(self.model.state_dict()), everywhere=True))
        parameters = dict(whole.named_parameters())
        mean = WeightMean([parameters[name] for name in self.names], self.mean.begins)
        mean.load(processes.whole(self.mean.state(), everywhere=True))
        return mean
