"""Trainings chosen from the data of a task, and the share of them that fits into the minutes of a run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.toys.toy_models import toy_config
from helpers.toys.training_data_files import DataFiles, ladders

from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.training_recipe import Recipe
from hamburger_edge.tuning import planning, shape
from hamburger_edge.tuning.planning import Budget, Pace, scored_within, steps_per_epoch
from hamburger_edge.tuning.shape import draft_vocab_size, graft_recipe, tuning_recipe
from hamburger_edge.tuning.tune_run import TuneRun

BASE, DATA = toy_config().base, ladders(40)
TUNING = tuning_recipe(DATA, BASE)
MERGING = tuning_recipe(DATA, BASE, merge=True, residual="mean")
AHEAD = ["tuning", "scoring", "graft"]


@pytest.mark.parametrize(
    ("tuning", "learned", "weight", "residual"),
    [
        (MERGING, {"micro", "stop_head"}, 0.0, "mean"),
        (None, {"embedder", "base", "micro", "stop_head"}, 1.0, "last"),
    ],
    ids=[
        "a base that reads merged text stays as it is",
        "one tuned elsewhere learns to read it beside the graft",
    ],
)
def test_graft_trains_its_parts_at_their_rates(
    tuning: Recipe | None, learned: set[str], weight: float, residual: str
) -> None:
    recipe = graft_recipe(DATA, BASE, tuning)
    [stage] = recipe.stages
    assert set(stage.learns) == learned
    assert stage.cuts is not None
    assert stage.loss.first == stage.loss.features == weight
    assert recipe.shape.merge_residual == residual


def test_base_reads_merged_text_only_if_asked_to() -> None:
    [plain], [merging] = TUNING.stages, MERGING.stages
    assert set(plain.learns) == {"base"}
    assert plain.cuts is None
    assert (TUNING.shape.max_group_tokens, MERGING.shape.max_group_tokens) == (1, shape.LONGEST)
    assert set(merging.learns) == {"base", "embedder"}
    assert merging.cuts is not None
    assert merging.cuts.merged == 0.5


def test_base_with_normed_blocks_trains_at_half_the_rate() -> None:
    def rate(base: BaseConfig, *, full: bool = False) -> float:
        [stage] = tuning_recipe(DATA, base, full=full).stages
        return stage.base_learning_rate

    normed = replace(BASE, output_norms=True)
    assert rate(normed) == rate(BASE) / 2
    assert rate(normed, full=True) == rate(BASE, full=True)


def test_few_examples_get_more_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not by a base that learns beside a graft, which would know them by heart."""

    def epochs() -> list[float]:
        beside = graft_recipe(DATA, BASE, None)
        recipes = tuning_recipe(DATA, BASE), graft_recipe(DATA, BASE, MERGING), beside
        return [recipe.stages[0].epochs for recipe in recipes]

    assert epochs() == [shape.MOST_EPOCHS, shape.MOST_EPOCHS, shape.EPOCHS]
    monkeypatch.setattr(shape, "BASE_STEPS", 1)
    monkeypatch.setattr(shape, "GRAFT_STEPS", 1)
    assert epochs() == [shape.EPOCHS] * 3


def test_draft_vocab_covers_nearly_all_answer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 tokens here, 94 are one of four, the others six rare ones."""
    monkeypatch.setattr(shape, "DRAFT_VOCABS", (2, 4, 5, 8))
    said = [token for token in (3, 4, 5, 6) for _ in range(23)] + [3, 4, 10, 11, 12, 13, 14, 15]
    data = DataFiles.in_memory(roles=[[TEMPLATE, *[ANSWER] * 100]], ids=[[50, *said]])
    for covered, size in ((0.94, 4), (0.95, 5), (1.0, 8)):  # the largest is all that is tried
        monkeypatch.setattr(shape, "COVERED", covered)
        assert draft_vocab_size(data, 97) == size
    assert draft_vocab_size(data, 8) == 0  # as large as the vocabulary: all of that


# Minutes


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """Ten minutes of a clock that stands still."""
    monkeypatch.setattr(planning, "now", lambda: 1000.0)
    made = Budget(10)
    made.export = 60.0
    return made


def test_budget_reserves_time_for_export_and_evaluation(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 seconds, 60 of them for the export and a tenth for judging."""
    shares = [budget.share(step, AHEAD) for step in AHEAD]
    assert sum(shares) == pytest.approx(600 - 60 - 60)
    assert shares[0] > sum(shares[1:])  # the base first
    assert budget.share("graft", ["graft"]) == pytest.approx(480)  # all of the remaining time
    monkeypatch.setattr(planning, "now", lambda: 5000.0)
    assert budget.left == budget.share("tuning", AHEAD) == 0  # late, and not less than none


@pytest.mark.parametrize(
    ("seconds", "epochs"),
    [(1.0, TUNING.stages[0].epochs), (100.0, 480 * 7 / 9.5 / 100 / 20), (1e9, 1 / 20)],
    ids=["there is time for more", "as many as fit", "one step at least"],
)
def test_epochs_fit_time_and_recipe(budget: Budget, seconds: float, epochs: float) -> None:
    """Where a step takes so long, and an epoch twenty of them."""
    budget.paces["tuning"] = Pace(step=seconds, slots=1024, steps_per_token=20 / len(DATA.ids))
    [stage] = budget.fitted(TUNING, DATA, AHEAD).stages
    assert stage.epochs == pytest.approx(epochs)


def test_steps_per_epoch_depend_on_the_entropies_of_the_answers(budget: Budget) -> None:
    """A probe on examples without entropies, which merge most, had promised too many epochs."""
    doubtful = replace(DATA, entropies=np.full_like(DATA.entropies, 5.0))
    graft = graft_recipe(DATA, BASE, MERGING)
    recipe = replace(graft, rows=1, row_slots=16, held_out=0.05, calibrate=False)
    few, many = (steps_per_epoch(recipe, data, BASE.vocab_size) for data in (DATA, doubtful))
    assert few < many
    budget.paces["graft"] = Pace(step=100.0, slots=16, steps_per_token=few / len(DATA.ids))
    [promised] = budget.fitted(recipe, doubtful, ["graft"]).stages
    [fitting] = budget.fitted(recipe, doubtful, ["graft"], many).stages
    assert fitting.epochs * many == pytest.approx(4.8)  # of 480 seconds
    assert fitting.epochs < promised.epochs


def test_plan_reports_epochs_and_warns(budget: Budget) -> None:
    def plan(budget: Budget, base: float, graft: float) -> str:
        """Where fifty steps make an epoch and each takes so many seconds."""
        for name, seconds, slots in (("tuning", base, 512), ("graft", graft, 2048)):
            budget.paces[name] = Pace(seconds, slots, steps_per_token=50 / len(DATA.ids))
        return budget.plan([MERGING, graft_recipe(DATA, BASE, MERGING)], DATA, AHEAD)

    line = plan(budget, 1.0, 30.0)  # few steps of a graft cost speed only: no reason to warn
    told = r"10 minutes: \d+ steps of the base \(7\.1 epochs\), 3 steps of the graft, export and judging"
    assert re.fullmatch(told, line)
    line = plan(budget, 10.0, 30.0)
    assert "too short to be useful, give --minutes " in line
    [alone] = re.findall(r"\d+ steps of the base", budget.plan([TUNING], DATA, ["tuning"]))
    assert int(alone.split()[0]) == pytest.approx(48, abs=1)  # of 480 seconds
    longer = Budget(int(line.rsplit(" ", 1)[1]))
    longer.export = budget.export
    assert "too short" not in plan(longer, 10.0, 30.0)


@pytest.mark.parametrize(
    ("seconds", "examples"),
    [(100.0, 75), (30.0, 50), (1e9, 0)],
    ids=["those for which the probe leaves time", "at least 50", "all"],
)
def test_scored_examples_fit_their_seconds(
    seconds: float, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One takes a second. At least 500 were scored once, however long they took."""
    clock = [1000.0]
    monkeypatch.setattr(planning, "now", lambda: clock[0])

    def score(part: DistilledData) -> None:
        clock[0] += len(part)

    assert scored_within(seconds, ladders(200), score) == examples
    assert clock[0] == 1025


def test_evaluated_prompts_fit_the_time_that_is_left(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ten minutes two in a hundred are for pictures and copies. At least 40 prompts were evaluated."""
    assert budget.prompts(answer_seconds=7.0, answers=6.0) == 14
    monkeypatch.setattr(planning, "now", lambda: 5000.0)
    assert budget.prompts(answer_seconds=7.0, answers=6.0) == 10


def test_training_leaves_time_to_calibrate_its_stop_head(budget: Budget) -> None:
    """The calibration part is read once, the held-out part twice, a token in a third of its training time."""
    recipe = replace(graft_recipe(DATA, BASE, MERGING), held_out=0.2)
    budget.paces["graft"] = Pace(step=6.0, slots=12, steps_per_token=1.0)
    split, tokens = DATA.split(0.2), np.diff(DATA.starts)
    read = tokens[split.calibration].sum() + 2 * tokens[split.held_out].sum()
    assert budget.closing(recipe, DATA) == pytest.approx(0.5 / 3 * read)
    [stage] = budget.fitted(recipe, DATA, ["graft"], per_epoch=1e3).stages
    assert stage.epochs * 1e3 * 6.0 + budget.closing(recipe, DATA) == pytest.approx(480)
    assert budget.closing(TUNING, DATA) == 0  # no stop head
    assert Budget(10).closing(recipe, DATA) == 0  # no pace was measured


def test_progress_shows_activity_remaining_time_and_correct_answers(tmp_path: Path) -> None:
    shown = list[tuple[str, int, int, str]]()
    run = TuneRun(
        tmp_path, progress=lambda stage, done, total, note="": shown.append((stage, done, total, note))
    )
    run.show("tuning", 9, 900, 600.0, {})
    run.show("tuning", 10, 900, 600.0, {"right": 0.625})
    assert shown == [
        ("learning to answer", 9, 900, "about 10 min left"),
        ("learning to answer", 10, 900, "about 10 min left, 62% of answers right so far"),
    ]


@pytest.mark.parametrize(("minutes", "hurried"), [(None, False), (14, True), (60, False)])
def test_short_run_leaves_the_gate_to_its_evaluation(
    tmp_path: Path, minutes: float | None, hurried: bool
) -> None:
    """The gate took half a minute of fourteen, and refused the model for a graft of one step."""
    assert TuneRun(tmp_path, None if minutes is None else Budget(minutes)).hurried is hurried
