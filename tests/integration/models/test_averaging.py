"""Means of weights: of a stage's last steps, and of the checkpoints that a run goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_checkpoints import write_hf
from toy_models import toy_model as random_model
from toy_training import JOINT, LORA, SHAPE, SHORT, toy_trainer
from training_data_files import DataFiles, ladders

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.training.runs import train
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Recipe, Stage
from hamburger_edge.models.training.updates.averaging import WeightMean, mean_state


def test_the_mean_is_that_of_the_last_steps() -> None:
    weight = torch.zeros(3)
    mean = WeightMean([weight], begins=2)
    for step in range(6):  # 0 1 | 2 3 4 5
        weight.fill_(step)
        mean.add(step)
    with mean.in_place():
        assert weight.tolist() == [3.5] * 3
    assert weight.tolist() == [5.0] * 3
    again = WeightMean([weight], begins=2)
    again.load(mean.state())
    weight.fill_(6)
    again.add(6)
    again.exchange()
    assert weight.tolist() == [4.0] * 3


def test_before_it_begins_the_weights_stay_what_they_are() -> None:
    weight = torch.ones(3)
    mean = WeightMean([weight], begins=10)
    mean.add(0)
    with mean.in_place():
        assert weight.tolist() == [1.0] * 3


@pytest.mark.parametrize("average", [0.0, 0.5, 1.0])
def test_a_stage_ends_with_the_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, average: float) -> None:
    """Of every step's weights from there on; that is also what is judged and saved."""
    seen: list[list[Tensor]] = []
    learning: list[Tensor] = []
    add = WeightMean.add

    def watched(self: WeightMean, step: int) -> None:
        learning[:] = self.parameters
        seen.append([parameter.detach().clone() for parameter in self.parameters])
        add(self, step)

    monkeypatch.setattr(WeightMean, "add", watched)
    trainer = toy_trainer(tmp_path, replace(SHORT, stages=(replace(JOINT, epochs=1, average=average),)))
    assert trainer.run()
    assert len(seen) > 8
    last = seen[len(seen) - round(average * len(seen)) :] or seen[-1:]
    for number, parameter in enumerate(learning):
        expected = torch.stack([step[number] for step in last]).mean(0)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=1e-5)
    state = dict(trainer.model.state_dict())
    saved = torch.load(tmp_path / "last.pt", weights_only=True)["model"]
    assert all(torch.equal(tensor, state[n]) for n, tensor in saved.items())


def checkpoints(folder: Path, stage: Stage) -> tuple[Recipe, list[str]]:
    """Two checkpoints, of which the second went on from the first, and the second's recipe."""
    torch.set_num_threads(1)
    base = str(write_hf(folder / "base", random_model()))
    DataFiles.write(folder / "data", ladders(200), {"base": base})
    stage = replace(stage, epochs=0.3)
    recipe = replace(
        SHORT, base=base, data=str(folder / "data"), out=str(folder / "1"), stages=(stage,), calibrate=False
    )
    first = train(recipe, folder / "first", rows="fp32", report=lambda line: None)
    recipe = replace(recipe, out=str(folder / "2"), start=str(first))
    second = train(recipe, folder / "second", rows="fp32", report=lambda line: None)
    return recipe, [str(first), str(second)]


def began(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Tensor]:
    """What a run by this recipe has learned before its first step."""
    found: dict[str, Tensor] = {}

    def keep(self: Trainer, *words: object, **names: object) -> bool:
        found.update({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run", keep)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, Path(recipe.out) / "never", report=lambda line: None)
    return found


@pytest.mark.parametrize("stage", [LORA, JOINT])
def test_a_run_goes_on_from_the_mean_of_checkpoints(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, (first, second) = checkpoints(tmp_path, stage)
    one, two = (began(replace(recipe, start=start), monkeypatch) for start in (first, second))
    recipe = replace(recipe, start=first, more_starts=(second, second))  # twice counts twice
    for name, tensor in began(recipe, monkeypatch).items():
        expected = (one[name] + 2 * two[name]) / 3 if tensor.is_floating_point() else one[name]
        torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=1e-5, msg=name)
    assert any(not torch.equal(one[name], two[name]) for name in one)


def test_checkpoints_that_have_no_mean_are_named(tmp_path: Path) -> None:
    recipe, (first, second) = checkpoints(tmp_path, LORA)
    both = replace(recipe, start=first, more_starts=(second,))
    other = replace(both, shape=replace(SHAPE, micro_layers=2))
    with pytest.raises(ConfigError, match=r"first: its shape is not the recipe's"):
        train(other, tmp_path / "third")
    (Path(second) / "base_delta.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"second: changes its base differently from .*first"):
        train(both, tmp_path / "third")
    ones, others = ({"draft_vocab": torch.tensor(tokens)} for tokens in ([1, 2], [1, 3]))
    with pytest.raises(ConfigError, match="draft_vocab differs between the checkpoints"):
        mean_state([ones, others])
    assert not (tmp_path / "third").exists()
