"""Losses and gradients that are not finite: left out, counted, and never in weights or saves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_training import JOINT, SHORT, toy_trainer

from hamburger_edge.errors import HamburgerError
from hamburger_edge.models.training.trainer import Trainer


def test_losses_that_are_not_finite_stop_the_run(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, SHORT)
    lines: list[str] = []
    trainer.report = lines.append
    with torch.no_grad():
        trainer.model.base.norm.weight.fill_(float("nan"))
    with pytest.raises(HamburgerError, match="for five steps: lower the learning rate and choose another"):
        trainer.run()
    assert sum("this batch is left out" in line for line in lines) == 4


class Overflowing(torch.autograd.Function):
    """Passes numbers on; on the way back, infinity."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("inf")


def overflow_in(trainer: Trainer, steps: set[int]) -> None:
    def hook(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
        overflows = torch.is_grad_enabled() and trainer.reached.step in steps
        return Overflowing.apply(output) if overflows else output

    trainer.model.base.norm.register_forward_hook(hook)


def test_gradients_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    """A finite loss may have infinite gradients: clipping made NaN of them, and NaN of all weights."""
    trainer = toy_trainer(tmp_path, replace(SHORT, stages=(replace(JOINT, epochs=1, average=0.9),)))
    lines: list[str] = []
    trainer.report = lines.append
    overflow_in(trainer, {1, 2, 5})
    assert trainer.run()
    left_out = [line for line in lines if "this batch is left out" in line]
    assert len(left_out) == 3
    assert "step 6: the gradient's norm is" in left_out[-1]
    assert "(3 so far)" in left_out[-1]
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert saved["progress"]["left_out"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in trainer.model.state_dict().values())


def test_five_such_gradients_in_a_row_end_the_run_at_its_last_good_save(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, SHORT)
    overflow_in(trainer, set(range(3, 99)))
    with pytest.raises(HamburgerError, match="no finite loss and gradient for five steps"):
        trainer.run()
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert saved["progress"] == {"stage": 0, "step": 3, "left_out": 0}
    trainer = toy_trainer(tmp_path, SHORT)
    assert trainer.run()  # without the cause, it goes on from there
    # and a save never holds NaN
    before = (tmp_path / "last.pt").read_bytes()
    with torch.no_grad():
        trainer.model.stop_head[0].weight[0, 0] = float("inf")
    with pytest.raises(HamburgerError, match=r"last\.pt: model\.stop_head.*holds NaN or infinity"):
        trainer._save()
    assert (tmp_path / "last.pt").read_bytes() == before
