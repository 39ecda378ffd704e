"""Muon, low-rank updates, ends of stages, calibration of the stop head, and operations of a step."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toys.toy_models import toy_model as random_model
from helpers.toys.toy_training import JOINT, RECIPE, SHORT, toy_model, toy_trainer
from helpers.toys.training_data_files import DataFiles, first_batch, ladders

from hamburger_edge.models.training.grafting import prepare
from hamburger_edge.models.training.optimizers import make_optimizers
from hamburger_edge.models.training.speed import base_work, faster_type, precision_of, product_rate
from hamburger_edge.models.training.stop_calibration import apply_to_stop_head, fit_stop_logits, reliability
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Stage
from hamburger_edge.models.training.updates.early_stopping import BestWeights
from hamburger_edge.models.training.updates.lora import LoraLinear, add_lora, merge_lora
from hamburger_edge.models.training.updates.muon import StackedMuon
from hamburger_edge.models.training.updates.step_limit import StepLimit


@pytest.mark.parametrize("nesterov", [True, False])
def test_grouped_muon_equals_torch_muon(nesterov: bool) -> None:
    drawn = torch.Generator().manual_seed(0)
    shapes = [(8, 24), (24, 8), (8, 24), (16, 16), (24, 8)]
    ours = [torch.nn.Parameter(torch.randn(shape, generator=drawn)) for shape in shapes]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    settings: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    together = StackedMuon(ours, nesterov=nesterov, **settings)
    alone = torch.optim.Muon(theirs, nesterov=nesterov, **settings)
    for step in range(3):
        for own, their in zip(ours, theirs, strict=True):
            own.grad = torch.randn(own.shape, generator=drawn)
            their.grad = own.grad.clone()
        if step == 1:  # a batch does not reach every parameter
            ours[0].grad = theirs[0].grad = None
        together.step()
        alone.step()
        if step == 1:  # a saved run continues with either
            together.load_state_dict(copy.deepcopy(alone.state_dict()))
    for own, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, their, rtol=1e-3, atol=1e-4)


def test_muon_multiplies_in_the_type_that_the_device_multiplies_faster() -> None:
    model = toy_model(replace(RECIPE, optimizer="muon"))
    prepare(model, RECIPE.stages[0], bf16=False)
    groups = [{"params": [p for p in model.parameters() if p.requires_grad], "lr": 0.02, "peak": 0.02}]
    muon, _ = make_optimizers(model, groups, replace(RECIPE, optimizer="muon"))
    assert isinstance(muon, StackedMuon)
    assert muon.dtype == faster_type("cpu")
    drawn = torch.Generator().manual_seed(0)
    start, gradient = (torch.randn(16, 24, generator=drawn) for _ in range(2))
    changes = []
    for dtype in (torch.bfloat16, torch.float32):
        parameter = torch.nn.Parameter(start.clone())
        parameter.grad = gradient.clone()
        StackedMuon([parameter], dtype, lr=0.02, adjust_lr_fn="match_rms_adamw").step()
        changes.append(parameter.detach() - start)
    assert not torch.equal(*changes)
    torch.testing.assert_close(*changes, rtol=0, atol=0.05 * float(changes[0].abs().max()))


@torch.no_grad()
def test_lora_starts_as_identity_and_merges_into_the_same_model() -> None:
    model = random_model()
    batch = first_batch(DataFiles.in_memory(roles=[[0] * 5 + [2] * 12]), cuts=None).groups
    before = {name: t.clone() for name, t in model.base.state_dict().items()}
    plain = model.features(batch)
    added = add_lora(model.base.layers, 3)
    assert len(added) == 2 * 7 * 3  # down and up of 7 linear layers in 3 decoder layers
    assert add_lora(model.base.layers, 3) == []
    assert not model.base.layers[0].mlp.up_proj.layer.weight.requires_grad
    torch.testing.assert_close(model.features(batch), plain, atol=0, rtol=0)
    for parameter in added:
        parameter.copy_(0.2 * torch.randn(parameter.shape))
    changed = model.features(batch)
    assert (changed - plain).abs().max() > 0.1
    pairs = merge_lora(model.base)
    assert not any(isinstance(module, LoraLinear) for module in model.modules())
    torch.testing.assert_close(model.features(batch), changed, atol=1e-4, rtol=1e-4)
    for name in {pair.rpartition(".")[0] for pair in pairs}:
        update = pairs[f"{name}.lora_b"] @ pairs[f"{name}.lora_a"]
        torch.testing.assert_close(model.base.state_dict()[name], before[name] + update)


def test_best_weights_are_kept_and_restored() -> None:
    weights = torch.nn.Parameter(torch.zeros(3))
    best, never = BestWeights([weights], patience=2), BestWeights([weights], patience=0)
    stops = []
    for loss in (3.0, 1.0, 2.0, 1.5):
        with torch.no_grad():
            weights.fill_(loss)
        stops.append(best.look(loss))
        assert not never.look(loss)
    assert stops == [False, False, False, True]
    never.restore()
    assert weights.tolist() == [1.5] * 3
    after = BestWeights([weights], patience=2)
    after.load(best.state())
    after.restore()
    assert weights.tolist() == [1, 1, 1]
    assert not after.look(0.5)
    assert after.looks == 0


def test_stage_without_improvement_ends(tmp_path: Path) -> None:
    still = replace(JOINT, epochs=3, learning_rate=1e-12, base_learning_rate=1e-12)
    recipe = replace(RECIPE, stages=(still, replace(still, name="next")), judge_every=5, patience=2)
    trainer, lines = toy_trainer(tmp_path, recipe, conversations=200), list[str]()
    trainer.report = lines.append
    assert trainer.run()
    ends = [line for line in lines if "read no better any more" in line]
    assert ends == [f"{stage}: held-out text is read no better any more" for stage in ("joint", "next")]
    # a learning rate near 0 still moves the last bits: the model has the best weights, not the newest
    again = Trainer(trainer.recipe, toy_model(recipe), trainer.data, lambda line: None, device="cpu")
    assert again.run()
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name


def test_progress_replaces_the_lines_with_figures(tmp_path: Path) -> None:
    recipe, lines = replace(SHORT, out=str(tmp_path)), list[str]()
    shown = list[tuple[str, int, int, dict[str, float]]]()
    trainer = Trainer(
        recipe,
        toy_model(recipe),
        ladders(200),
        lines.append,
        device="cpu",
        watch=lambda model: {"right": 0.5},
        progress=lambda stage, step, steps, seconds, answers: shown.append((stage, step, steps, answers)),
    )
    trainer.look_at = 0.0  # the watch looks after the first step
    assert trainer.run()
    assert lines == []
    steps = shown[0][2]
    assert shown[0] == ("plain", 1, steps, {})
    assert shown[steps - 1] == ("plain", steps, steps, {"right": 0.5})
    assert '"kind": "train"' in (tmp_path / "metrics.jsonl").read_text()


# (seconds since the step before, pace) of each step; planned steps, the stage's seconds, its steps after each
TIMES: dict[str, tuple[list[tuple[float, float]], int, float, list[int]]] = {
    "as planned": ([(1.0, 0.9)] * 5, 10, 10.0, [10] * 5),
    "slower": ([(1.0, 0.9), *[(2.0, 2.0)] * 3, (3.0, 2.0)], 10, 10.0, [10, 5, 5, 5, 5]),
    "held-out text was read": ([(1.0, 1.0), (5.0, 1.0)], 10, 20.0, [10, 10]),
    "faster again": ([(1.0, 1.0), (4.0, 4.0), (0.1, 2.0), (0.1, 0.5)], 10, 12.0, [10, 3, 6, 10]),
    "no limit": ([(0.0, 0.0), (1e9, 1e9)], 10, math.inf, [10, 10]),
}


@pytest.mark.parametrize("case", TIMES)
def test_stage_makes_the_steps_that_fit_its_seconds(case: str) -> None:
    """A run of 14 minutes took 15.2, since its steps were counted before others used the machine."""
    times, planned, seconds, expected = TIMES[case]
    now = [100.0]
    limit = StepLimit(planned, seconds, lambda: now[0])
    found = []
    for step, (passed, pace) in enumerate(times):
        now[0] += passed
        found.append(limit.after(step + 1, pace))
    assert found == expected


def test_stage_keeps_time_for_the_look_at_its_end() -> None:
    """The share of right answers is measured once more after the last step: a run took that time too long."""
    limit = StepLimit(100, 105.0, lambda: 0.0)
    assert limit.after(1, 2.0) == 51
    limit.reserve(63.0)
    assert limit.after(1, 2.0) == 21
    limit.reserve(21.0)  # the model learned to end its answers
    assert limit.after(1, 2.0) == 41


def test_stage_ends_after_its_seconds(tmp_path: Path) -> None:
    """Judged and saved, so that the next one follows."""
    trainer = toy_trainer(tmp_path / "run", SHORT)
    trainer.stage_seconds = 0.0
    assert trainer.run()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    told = [(line["kind"], line["stage"], line["step"]) for line in map(json.loads, lines)]
    assert [one for one in told if one[0] == "train"] == [("train", "plain", 2), ("train", "joint", 2)]
    assert ("held_out_merged", "joint", 2) in told


def work(learns: str, scored: int, rank: int = 0) -> float:
    """Operations of seven slots."""
    model = random_model()
    stage = Stage(name="one", learns=(learns,), epochs=1.0, learning_rate=1e-3, lora_rank=rank)
    prepare(model, stage, bf16=False)
    return base_work(model, stage, 7, scored)


def test_products_of_a_step_depend_on_the_trained_parts() -> None:
    """Forward, to the inputs, to the weights; with an update of low rank the last for the update alone."""
    base = random_model().base
    layers = sum(weight.numel() for weight in base.layers.parameters() if weight.ndim == 2)
    frozen = work("micro", 0)
    assert frozen == 2 * 7 * layers
    assert work("micro", 3) == frozen + 2 * 3 * base.head_weight.numel()
    assert work("base", 0) == 3 * frozen
    assert 2 * frozen < work("base", 0, rank=2) < 3 * frozen


def test_faster_precision_is_chosen() -> None:
    exact, half = (product_rate("cpu", dtype) for dtype in (torch.float32, torch.bfloat16))
    assert min(exact, half) > 0
    auto = replace(RECIPE, precision="auto")
    assert precision_of(auto, "cpu") == ("bf16" if half > exact else "fp32")
    assert precision_of(replace(auto, precision="bf16"), "cpu") == "bf16"


def test_calibration_repairs_a_miscalibrated_head() -> None:
    torch.manual_seed(0)
    truth = 3 * torch.randn(20_000)  # logits of "the next micro token is wrong"
    rights = (torch.rand(20_000) > truth.sigmoid()).float()
    shifted = 0.4 * truth - 1.5  # scores of a badly scaled head
    scale, offset = fit_stop_logits(shifted[:10_000], rights[:10_000])
    assert scale == pytest.approx(1 / 0.4, rel=0.1)
    assert offset == pytest.approx(1.5 / 0.4, rel=0.1)
    before = reliability(shifted[10_000:], rights[10_000:])
    after = reliability(scale * shifted[10_000:] + offset, rights[10_000:])
    assert before.error > 0.1
    assert after.error < 0.02
    assert sum(after.counts) == 10_000

    model = random_model()
    states = torch.randn(5, 32)
    expected = scale * model.stop_logits(states) + offset
    apply_to_stop_head(model, scale, offset)
    torch.testing.assert_close(model.stop_logits(states), expected)


def test_calibration_on_little_data_changes_little() -> None:
    scale, offset = fit_stop_logits(torch.tensor([1.0, -1.0]), torch.tensor([0.0, 1.0]))  # both right
    assert 1 < scale < 2
    assert offset == pytest.approx(0, abs=1e-6)
    scale, _ = fit_stop_logits(torch.tensor([1.0, -1.0] * 99), torch.tensor([1.0, 0.0] * 99))  # always wrong
    assert scale == 0


@torch.no_grad()
def test_reliability_error_equals_a_hand_computed_value() -> None:
    stops = -torch.tensor([0.85, 0.85, 0.15, 0.15]).logit()  # p(continue)
    found = reliability(stops, torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert found.error == pytest.approx((2 * 0.15 + 2 * 0.35) / 4, abs=1e-6)
    assert found.counts[8] == found.counts[1] == 2
