"""What fits into the minutes of a run, by paces that are given here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_models import toy_config
from training_data_files import ladders

from hamburger_edge.tuning import planning
from hamburger_edge.tuning.planning import Budget, Pace, steps_per_epoch
from hamburger_edge.tuning.shape import graft_recipe, tuning_recipe
from hamburger_edge.tuning.tune import Tuning
from hamburger_edge.tuning.tune_recipe import TuneRecipe

BASE = toy_config().base
AHEAD = ["tuning", "scoring", "graft"]


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """Ten minutes of a clock that stands still."""
    monkeypatch.setattr(planning, "now", lambda: 1000.0)
    made = Budget(10)
    made.export = 60.0
    return made


def test_export_and_judging_are_set_aside(budget: Budget) -> None:
    """600 seconds, 60 of them for the export and a tenth for judging."""
    assert budget.left == 600
    shares = [budget.share(step, AHEAD) for step in AHEAD]
    assert sum(shares) == pytest.approx(600 - 60 - 60)
    assert shares[0] > sum(shares[1:])  # the base first
    assert budget.share("graft", ["graft"]) == pytest.approx(480)  # what is left goes to what is left to do


def test_a_late_run_has_no_time_rather_than_less_than_none(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "now", lambda: 5000.0)
    assert budget.left == budget.share("tuning", AHEAD) == 0


def test_epochs_fit_the_time_and_the_recipe(budget: Budget) -> None:
    data = ladders(40)
    recipe = tuning_recipe(data, BASE)

    def epochs(seconds: float) -> float:
        """Where a step takes so long, and an epoch twenty of them."""
        budget.paces["tuning"] = Pace(step=seconds, slots=1024, steps_per_token=20 / len(data.ids))
        [stage] = budget.fitted(recipe, data, AHEAD).stages
        return stage.epochs

    assert epochs(1.0) == recipe.stages[0].epochs  # there is time for more
    assert epochs(100.0) == pytest.approx(budget.share("tuning", AHEAD) / 100 / 20)
    assert epochs(1e9) == pytest.approx(1 / 20)  # one step at least


def test_steps_of_an_epoch_depend_on_what_the_base_makes_of_the_answers(budget: Budget) -> None:
    """A probe on examples without entropies, which merge most, had promised too many epochs."""
    certain = ladders(40)
    doubtful = replace(certain, entropies=np.full_like(certain.entropies, 5.0))
    recipe = graft_recipe(certain, BASE, tuning_recipe(certain, BASE))
    recipe = replace(recipe, rows=1, row_slots=16, held_out=0.05)
    few, many = (steps_per_epoch(recipe, data, BASE.vocab_size) for data in (certain, doubtful))
    assert few < many
    budget.paces["graft"] = Pace(step=100.0, slots=16, steps_per_token=few / len(certain.ids))
    [promised] = budget.fitted(recipe, doubtful, ["graft"]).stages
    [fitting] = budget.fitted(recipe, doubtful, ["graft"], many).stages
    assert fitting.epochs * many == pytest.approx(4.8)  # of 480 seconds
    assert fitting.epochs < promised.epochs


def plan(budget: Budget, **steps: float) -> str:
    """Where fifty steps make an epoch and each takes so many seconds."""
    data = ladders(40)
    tuning = tuning_recipe(data, BASE)
    for name, seconds in steps.items():
        slots = {"tuning": 512, "graft": 2048}[name]
        budget.paces[name] = Pace(step=seconds, slots=slots, steps_per_token=50 / len(data.ids))
    return budget.plan([tuning, graft_recipe(data, BASE, tuning)], data, AHEAD)


def test_a_graft_of_few_steps_is_no_reason_to_warn(budget: Budget) -> None:
    """It costs speed only; the plan of a useful run asked for more minutes."""
    line = plan(budget, tuning=1.0, graft=30.0)
    assert line.endswith("steps of the base (7.1 epochs), 3 steps of the graft, export and judging"), line


def test_the_plan_names_what_fits_and_warns(budget: Budget) -> None:
    line = plan(budget, tuning=1.0, graft=1.0)
    assert re.fullmatch(r"10 minutes: .*steps of the base \(.*steps of the graft, export and judging", line)
    line = plan(budget, tuning=10.0)
    assert "too short to be useful, give --minutes " in line
    longer = Budget(int(line.rsplit(" ", 1)[1]))
    longer.export, longer.paces = budget.export, budget.paces
    assert "too short" not in plan(longer)


@pytest.mark.parametrize(("minutes", "hurried"), [(None, False), (14, True), (60, False)])
def test_a_short_run_leaves_the_gate_to_its_evaluation(
    tmp_path: Path, minutes: float | None, hurried: bool
) -> None:
    """The gate took half a minute of fourteen, and refused the model for a graft of one step."""
    assert Tuning(TuneRecipe(base="b", examples="e"), tmp_path, minutes=minutes).hurried is hurried
