"""Operations of a training step."""

from __future__ import annotations

import torch
from toy_models import toy_model

from hamburger_edge.models.training.grafting import prepare
from hamburger_edge.models.training.speed import base_work, fitting_precision, product_rate
from hamburger_edge.models.training.training_recipe import Stage


def stage(*learns: str, rank: int = 0) -> Stage:
    return Stage(name="one", learns=learns, epochs=1.0, learning_rate=1e-3, lora_rank=rank)


def work(one: Stage, slots: int, scored: int) -> float:
    model = toy_model()
    prepare(model, one, bf16=False)
    return base_work(model, one, slots, scored)


def test_a_frozen_base_multiplies_forward_alone() -> None:
    base = toy_model().base
    layers = sum(weight.numel() for weight in base.layers.parameters() if weight.ndim == 2)
    head = base.head_weight.numel()
    assert work(stage("micro"), 7, 0) == 2 * 7 * layers
    assert work(stage("micro"), 7, 3) == 2 * (7 * layers + 3 * head)


def test_what_learns_multiplies_backward_too() -> None:
    """Forward, to the inputs, to the weights; with an update of low rank the last for the update alone."""
    frozen, full = work(stage("micro"), 7, 0), work(stage("base"), 7, 0)
    low = work(stage("base", rank=2), 7, 0)
    assert full == 3 * frozen
    assert 2 * frozen < low < full


def test_the_faster_precision_is_taken() -> None:
    exact, half = (product_rate("cpu", dtype) for dtype in (torch.float32, torch.bfloat16))
    assert min(exact, half) > 0
    assert fitting_precision("cpu") == ("bf16" if half > exact else "fp32")
