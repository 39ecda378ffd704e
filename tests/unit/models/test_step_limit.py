"""The steps of a stage that fit into its seconds, by a clock that is set here."""

from __future__ import annotations

import json
import math
from pathlib import Path

from toy_training import SHORT, toy_trainer

from hamburger_edge.models.training.updates.step_limit import StepLimit


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
