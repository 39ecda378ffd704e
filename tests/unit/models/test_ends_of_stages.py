"""A stage ends when held-out text is read no better for a while, and when its seconds have passed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import torch
from toy_training import JOINT, RECIPE, SHORT, toy_model, toy_trainer

from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.updates.early_stopping import BestWeights
from hamburger_edge.models.training.updates.step_limit import StepLimit


def test_the_best_weights_are_kept_and_come_back() -> None:
    weights = torch.nn.Parameter(torch.zeros(3))
    best = BestWeights([weights], patience=2)
    stops = []
    for loss in (3.0, 1.0, 2.0, 1.5):
        with torch.no_grad():
            weights.fill_(loss)
        stops.append(best.look(loss))
    assert stops == [False, False, False, True]
    after = BestWeights([weights], patience=2)
    after.load(best.state())
    after.restore()
    assert weights.tolist() == [1, 1, 1]
    assert not after.look(0.5)
    assert after.looks == 0


def test_without_patience_nothing_is_kept() -> None:
    weights = torch.nn.Parameter(torch.ones(3))
    best = BestWeights([weights], patience=0)
    assert not best.look(1.0)
    assert not best.look(2.0)
    best.restore()
    assert weights.tolist() == [1, 1, 1]


def told_by(trainer: Trainer) -> list[str]:
    """Of each stage that ended early, while it runs."""
    lines: list[str] = []
    trainer.report = lines.append
    assert trainer.run()
    return [line for line in lines if "read no better any more" in line]


def test_a_stage_that_learns_nothing_more_ends(tmp_path: Path) -> None:
    still = replace(JOINT, epochs=3, learning_rate=1e-12, base_learning_rate=1e-12)
    recipe = replace(RECIPE, stages=(still, replace(still, name="next")), judge_every=5, patience=2)
    trainer = toy_trainer(tmp_path, recipe, conversations=200)
    told = [f"{stage}: held-out text is read no better any more" for stage in ("joint", "next")]
    assert told_by(trainer) == told
    # rates of nothing still move the last bits: what is in place is what was best, not what came last
    again = Trainer(trainer.recipe, toy_model(recipe), trainer.data, lambda line: None, device="cpu")
    assert again.run()
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name


def test_a_stage_that_learns_goes_on(tmp_path: Path) -> None:
    recipe = replace(RECIPE, stages=(replace(JOINT, epochs=2),), judge_every=10, patience=2)
    assert not told_by(toy_trainer(tmp_path, recipe, conversations=300))


# The steps that fit into its seconds, by a clock that is set here


def steps_after(times: list[tuple[float, float]], planned: int, seconds: float) -> list[int]:
    """Return the number of steps after each step, of (seconds since the step before, pace)."""
    now = [100.0]
    limit = StepLimit(planned, seconds, lambda: now[0])
    found = []
    for step, (passed, pace) in enumerate(times):
        now[0] += passed
        found.append(limit.after(step + 1, pace))
    return found


def test_a_machine_that_became_slower_does_fewer_steps() -> None:
    """A run of 14 minutes took 15.2, since its steps were counted before others used the machine."""
    assert steps_after([(1.0, 0.9)] * 5, 10, 10.0) == [10] * 5
    slower = [(1.0, 0.9), (2.0, 2.0), (2.0, 2.0), (2.0, 2.0), (3.0, 2.0)]
    assert steps_after(slower, 10, 10.0) == [10, 5, 5, 5, 5]


def test_reading_held_out_text_does_not_count_as_a_slow_step() -> None:
    """It takes its time, and the steps after it are as fast as before."""
    assert steps_after([(1.0, 1.0), (5.0, 1.0)], 10, 20.0) == [10, 10]


def test_a_machine_that_became_faster_does_more_of_them() -> None:
    assert steps_after([(1.0, 1.0), (4.0, 4.0), (0.1, 2.0), (0.1, 0.5)], 10, 12.0) == [10, 3, 6, 10]


def test_without_a_limit_nothing_changes() -> None:
    assert steps_after([(0.0, 0.0), (1e9, 1e9)], 10, math.inf) == [10, 10]


def test_a_stage_ends_with_its_seconds(tmp_path: Path) -> None:
    """Judged and saved, so that the next one follows."""
    trainer = toy_trainer(tmp_path / "run", SHORT)
    trainer.stage_seconds = 0.0
    assert trainer.run()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    told = [(line["kind"], line["stage"], line["step"]) for line in map(json.loads, lines)]
    assert [one for one in told if one[0] == "train"] == [("train", "plain", 2), ("train", "joint", 2)]
    assert ("held_out_merged", "joint", 2) in told
