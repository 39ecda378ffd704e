"""A toy training from end to end: it learns, and goes on exactly where it stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.toys.toy_checkpoints import same_weights
from helpers.toys.toy_training import JOINT, LORA, SHORT, short, toy_model, toy_trainer

from hamburger_edge.errors import ConfigError, HamburgerError
from hamburger_edge.models.distillation.data_manifest import Shard
from hamburger_edge.models.training.curves import plot
from hamburger_edge.models.training.data.batches import Cuts
from hamburger_edge.models.training.grafting import prepare
from hamburger_edge.models.training.metrics import append_metrics, read_metrics
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.optimizers import make_optimizers, schedule
from hamburger_edge.models.training.reading import JUDGING_CUTS, Reader
from hamburger_edge.models.training.run_state import Reached
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Stage


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, dict[str, float], dict[str, float]]:
    """A trained toy, and held-out metrics before and after."""
    trainer = toy_trainer(tmp_path_factory.mktemp("run"))
    objective = Objective(trainer.model, LossWeights())
    before = trainer.judge(objective, Cuts())
    assert trainer.run()
    return trainer, before, trainer.judge(objective, Cuts())


def test_training_reduces_the_loss(trained: tuple) -> None:
    trainer, before, after = trained
    assert after["first_loss"] < 0.5 * before["first_loss"]
    assert after["micro_loss"] < 0.5 * before["micro_loss"]
    assert after["micro_agree_1"] > before["micro_agree_1"] + 0.3
    series, begins = read_metrics(trainer.out / "metrics.jsonl")
    assert list(begins) == ["plain", "joint"]
    merged_steps = list(series["held_out_merged", "first_loss"])
    assert merged_steps == sorted(merged_steps)
    assert min(merged_steps) > begins["joint"] > 0  # nothing is merged in the first stage
    assert plot(trainer.out).read_bytes().startswith(b"\x89PNG")


def test_repeated_or_partial_metrics_are_read(tmp_path: Path) -> None:
    """A regression: a kill in the middle of a line left a file that could not be read."""
    for stage, step, loss in [("a", 10, 5.0), ("a", 20, 4.0), ("a", 10, 3.0), ("b", 10, 2.0)]:
        append_metrics(tmp_path, "train", stage, step, {"loss": loss})
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"kind": "train", "stage": "b", "st')
    append_metrics(tmp_path, "train", "b", 20, {"loss": 1.0})
    series, begins = read_metrics(tmp_path / "metrics.jsonl")
    assert series == {("train", "loss"): {10: 3.0, 20: 4.0, 30: 2.0, 40: 1.0}}
    assert begins == {"a": 0, "b": 20}
    with pytest.raises(ConfigError, match="nowhere"):
        read_metrics(tmp_path / "nowhere")


def test_held_out_figures_cover_every_conversation(tmp_path: Path) -> None:
    """However many fit a batch: conversations of a short last one were neither judged nor calibrated by."""
    found = []
    for rows in (3, 500):
        trainer = toy_trainer(tmp_path / str(rows), replace(SHORT, rows=rows, judge_batches=10**6))
        plan = trainer.reader.batches(trainer.split.held_out, JUDGING_CUTS, seed=2).plan(0)
        assert len(plan[-1]) < rows
        judged = trainer.judge(Objective(trainer.model, LossWeights()).eval(), JUDGING_CUTS)
        calibrated = trainer.calibrate()
        fitted = {"scale": calibrated.scale, "offset": calibrated.offset}
        found.append({**judged, **fitted, "judged": sum(calibrated.before.counts)})
    assert found[0] == pytest.approx(found[1], abs=1e-3)


def test_own_groups_cover_every_conversation(trained: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, *_ = trained
    found = []
    for rows in (30, 500):
        reader = Reader(replace(trainer.recipe, rows=rows), trainer.model, trainer.data, trainer.device)
        assert len(reader.batches(trainer.split.train, None, 0).plan(0)[-1]) < rows
        monkeypatch.setattr(trainer, "reader", reader)
        found.append(trainer._own_lengths(JOINT, Objective(trainer.model, LossWeights()).eval()))
    assert (found[1] > 1).sum() > 500
    assert (found[0] != found[1]).sum() < 3  # except near ties


def test_calibration_holds_on_other_questions(trained: tuple) -> None:
    trainer, *_ = trained
    last = trainer.model.stop_head[-1]
    with torch.no_grad():  # spoil the head: too sure of everything
        last.weight.mul_(2.5)
        last.bias.mul_(2.5).sub_(2.0)
    found = trainer.calibrate()
    assert found.before.error > 1.5 * found.after.error
    assert found.after.error < 0.12  # of a few hundred places
    assert f"by {found.after.error:.3f} on average" in str(found)


@pytest.mark.parametrize(("lora_rank", "optimizer"), [(0, "muon"), (2, "adamw")])
def test_resumed_run_ends_with_the_same_weights(
    tmp_path: Path, lora_rank: int, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after each of its first steps, and killed amid the second stage."""
    recipe = replace(short(lora_rank), optimizer=optimizer)
    whole = toy_trainer(tmp_path / "whole", recipe, conversations=100)
    assert whole.run()
    for step in (1, 2):
        trainer = toy_trainer(tmp_path / "stopped", recipe, conversations=100)
        assert not trainer.run(minutes=0)
        assert trainer.reached == Reached(0, step)
    trainer = toy_trainer(tmp_path / "stopped", recipe, conversations=100)
    save = trainer._save

    def save_and_die(*words: object) -> None:
        save(*words)  # type: ignore[arg-type]
        if trainer.reached == Reached(1, 4):
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_save", save_and_die)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    resumed = toy_trainer(tmp_path / "stopped", recipe, conversations=100)
    assert resumed.run()
    same_weights(resumed.model, whole.model)


def test_run_of_another_recipe_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    """Saves used to count processes, each of which had one batch of a step."""
    toy_trainer(tmp_path, SHORT).run(minutes=0)
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    with pytest.raises(ConfigError, match=r"last\.pt: was made by another recipe"):
        toy_trainer(tmp_path, replace(SHORT, clip=0.5)).run()
    other_data = toy_trainer(tmp_path, SHORT)
    other_data.data.shards.append(Shard("more.safetensors", "0" * 64, 1, 1, 1, ()))
    with pytest.raises(ConfigError, match=r"last\.pt: was made with other data"):
        other_data.run()
    assert saved.pop("batches a step") == 1
    torch.save({**saved, "processes": 2}, tmp_path / "last.pt")
    with pytest.raises(ConfigError, match=r"last\.pt: was made with other batches a step"):
        toy_trainer(tmp_path, SHORT).run()
    torch.save({**saved, "processes": 1}, tmp_path / "last.pt")
    assert not toy_trainer(tmp_path, SHORT).run(minutes=0)


def test_each_part_trains_at_its_rate_and_others_stay(tmp_path: Path) -> None:
    stage = Stage("s", ("stop_head", "base"), epochs=0.2, learning_rate=1e-3, base_learning_rate=1e-5)
    trainer = toy_trainer(tmp_path, replace(SHORT, stages=(stage,)), conversations=300)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    assert [group["peak"] for group in prepare(trainer.model, stage, bf16=False)] == [1e-5, 1e-3]
    assert trainer.run()
    after = trainer.model.state_dict()
    moved = {name.partition(".")[0] for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"base", "stop_head", "stop_evidence"}


def test_muon_updates_matrices_and_adamw_the_rest() -> None:
    model, recipe = toy_model(), replace(SHORT, optimizer="muon")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    muon, adamw = (
        [{names[id(p)] for p in group["params"]} for group in optimizer.param_groups]
        for optimizer in make_optimizers(model, prepare(model, JOINT, bf16=False), recipe)
    )
    assert "base.layers.0.mlp.up_proj.weight" in muon[0]
    assert {"micro.layers.0.self_attn.q_proj.weight", "embedder.query.weight"} < muon[1]
    assert {"base.embed_tokens.weight", "base.norm.weight"} < adamw[0]
    assert {"embedder.places", "embedder.output.bias", "stop_evidence"} < adamw[1]
    assert len(set.union(*muon, *adamw)) == sum(map(len, [*muon, *adamw])) == len(names)
    only_low_rank = prepare(model, replace(LORA, learns=("base",)), bf16=False)
    [alone] = make_optimizers(model, only_low_rank, recipe)
    assert isinstance(alone, torch.optim.Muon)


def test_learning_rate_follows_the_schedule() -> None:
    rates = [schedule(step, 100, 0.1, 0.2) for step in range(101)]
    assert rates[:10] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert [rates[10], rates[55], rates[100]] == pytest.approx([1.0, 0.6, 0.2])


def test_epoch_count_may_exceed_the_batches_of_an_epoch(tmp_path: Path) -> None:
    """Random cuts make epochs of unequal length: running out of batches must not end a run."""
    recipe = replace(SHORT, stages=(replace(JOINT, epochs=12, cuts=Cuts(entropy=0.3, random=0.5)),), rows=1)
    trainer = toy_trainer(tmp_path, recipe, conversations=60)
    batches = trainer.batches(recipe.stages[0].cuts, 0)
    assert len({len(batches.plan(epoch)) for epoch in range(12)}) > 1
    assert trainer.run()


def test_step_has_the_number_of_batches_of_its_recipe(tmp_path: Path) -> None:
    steps = []
    for count, slots in ((0, 128), (2, 256)):
        trainer = toy_trainer(tmp_path / str(count), replace(SHORT, step_batches=count))
        lines: list[str] = []
        trainer.report = lines.append
        assert not trainer.run(minutes=0)
        assert f"steps of {slots} slots" in lines[0]
        steps.append(int(lines[0].split()[2]))
    assert steps[1] == steps[0] // 2
    with pytest.raises(ConfigError, match="step_batches must be 0 or more"):
        replace(SHORT, step_batches=-1)


def test_non_finite_gradients_are_skipped_and_five_in_a_row_end_the_run(tmp_path: Path) -> None:
    """A finite loss may have infinite gradients: clipping made NaN of them, and NaN of all weights."""
    trainer = toy_trainer(tmp_path, SHORT)
    lines: list[str] = []
    trainer.report = lines.append

    def overflow(module: object, inputs: object, output: torch.Tensor) -> None:
        if output.requires_grad and trainer.reached.step in {1, 2, *range(5, 99)}:
            output.register_hook(lambda gradient: gradient * float("inf"))

    trainer.model.base.norm.register_forward_hook(overflow)
    with pytest.raises(HamburgerError, match="no finite loss and gradient for five steps"):
        trainer.run()
    left_out = [line for line in lines if "this batch is left out" in line]
    assert len(left_out) == 2 + 4
    assert "step 3: the gradient's norm is" in left_out[1]
    assert "(2 so far)" in left_out[1]
    # it goes on from the last good save, without the cause
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert saved["progress"] == {"stage": 0, "step": 5, "left_out": 2}
    trainer = toy_trainer(tmp_path, SHORT)
    assert trainer.run()
    assert all(torch.isfinite(tensor).all() for tensor in trainer.model.state_dict().values())
    # and a save never holds NaN
    before = (tmp_path / "last.pt").read_bytes()
    with torch.no_grad():
        trainer.model.stop_head[0].weight[0, 0] = float("inf")
    with pytest.raises(HamburgerError, match=r"last\.pt: model\.stop_head.*holds NaN or infinity"):
        trainer._save()
    assert (tmp_path / "last.pt").read_bytes() == before
