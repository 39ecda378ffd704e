"""A stage ends when held-out text is read no better for a while."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from toy_training import JOINT, RECIPE, toy_model, toy_trainer

from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.updates.early_stopping import BestWeights


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
