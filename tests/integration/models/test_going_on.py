"""Runs that go on from checkpoints, the checkpoints that runs end with, and means of weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from helpers.toys.toy_checkpoints import same_weights, save, write_hf
from helpers.toys.toy_models import toy_model as random_model
from helpers.toys.toy_training import JOINT, LORA, SHAPE, SHORT, toy_base, toy_model, toy_trainer
from helpers.toys.training_data_files import DataFiles, ladders
from safetensors.torch import load_file

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.loading import find_base, load_base
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.manifest import DELTA, GRAFT
from hamburger_edge.models.training.data.batches import Cuts, DistilledData
from hamburger_edge.models.training.grafting import prepare
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.reading import JUDGING_CUTS, judging_cuts
from hamburger_edge.models.training.runs import merged, new_model, train
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Recipe, Stage
from hamburger_edge.models.training.updates.averaging import WeightMean, mean_state
from hamburger_edge.models.training.updates.lora import lora_pairs


def on_disk(folder: Path, stage: Stage) -> Recipe:
    """A recipe of this one stage, with a new base and new data."""
    torch.set_num_threads(1)
    base = write_hf(folder / "base", random_model())
    DataFiles.write(folder / "data", ladders(200), {"base": str(base)})
    places = {"base": str(base), "data": str(folder / "data"), "out": str(folder / "out")}
    return replace(SHORT, stages=(stage,), calibrate=False, **places)


def made(recipe: Recipe, checkpoint: Path) -> str:
    """Run this recipe and return its checkpoint."""
    recipe = replace(recipe, out=f"{checkpoint}-run")
    assert train(recipe, checkpoint, rows="fp32", report=lambda line: None) == checkpoint
    return str(checkpoint)


def begun(recipe: Recipe) -> Hamburger:
    """Return the model that a run by this recipe begins with."""
    return new_model(recipe, load_base(recipe.base), DistilledData.load(Path(recipe.data)))


def still(stage: Stage) -> Stage:
    """Learns next to nothing."""
    return replace(stage, epochs=0.1, learning_rate=1e-12, base_learning_rate=1e-12)


def test_time_limit_can_end_with_a_checkpoint(tmp_path: Path) -> None:
    """Of the mean of the steps so far, and the run goes on from its own weights."""
    recipe = on_disk(tmp_path, replace(LORA, average=1.0))
    assert train(recipe, tmp_path / "no", minutes=0, report=lambda line: None) is None
    assert not (tmp_path / "no").exists()
    early = train(recipe, tmp_path / "early", minutes=0, finish=True, rows="fp32", report=lambda line: None)
    assert early is not None
    saved = torch.load(tmp_path / "out" / "last.pt", weights_only=True)
    assert saved["mean"]["count"] == saved["progress"]["step"] == 2
    name = "embedder.query.weight"  # one step and the other are averaged
    assert not torch.equal(load_checkpoint(early).model.state_dict()[name], saved["model"][name])


def test_draft_vocab_is_chosen_from_training_text_only(tmp_path: Path) -> None:
    """A token that only held-out answers hold got in, and their figures were too good."""
    recipe, data = on_disk(tmp_path, JOINT), ladders(500)
    base, alike = load_base(recipe.base), new_model(recipe, load_base(recipe.base), data).draft_vocab
    for number in data.split(recipe.held_out).held_out:
        start, stop = data.starts[number : number + 2]
        data.top_ids[start:stop, 0] = 96
    assert 96 not in alike
    assert new_model(recipe, base, data).draft_vocab.tolist() == alike.tolist()


@pytest.mark.parametrize(("stage", "precision"), [(JOINT, "fp32"), (LORA, "bf16")])
def test_merged_checkpoint_keeps_the_base_and_the_update(
    tmp_path: Path, stage: Stage, precision: Literal["fp32", "bf16"]
) -> None:
    """At bf16 training rounds a frozen base; the merged model has the exact one."""
    stages = (replace(stage, epochs=0.3),)
    recipe = replace(SHORT, stages=stages, out=str(tmp_path), precision=precision)
    base, data = toy_base(), ladders(300)
    trainer = Trainer(recipe, toy_model(recipe), data, lambda line: None, device="cpu")
    assert trainer.run()
    together, delta = merged(recipe, base, data, trainer.model)
    kinds = {name.rpartition(".")[2] for name in delta}
    assert kinds == ({"lora_a", "lora_b"} if stage.lora_rank else {"delta"})
    for name, tensor in lora_pairs(trainer.model.base).items():
        assert torch.equal(delta[name], tensor)
    for name, tensor in together.base.state_dict().items():
        expected = base.state[name]
        if f"{name}.delta" in delta:
            expected = expected + delta[f"{name}.delta"]
        if f"{name}.lora_a" in delta:
            expected = expected + delta[f"{name}.lora_b"] @ delta[f"{name}.lora_a"]
        torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=1e-5)
    assert any(not torch.equal(t, base.state[n]) for n, t in together.base.state_dict().items())
    for name, tensor in together.micro.state_dict().items():
        assert torch.equal(tensor, trainer.model.micro.state_dict()[name])


@pytest.mark.parametrize("stage", [JOINT, LORA])
def test_start_share_keeps_a_part_of_the_continued_weights(tmp_path: Path, stage: Stage) -> None:
    first = on_disk(tmp_path, replace(stage, epochs=0.3))
    start = made(first, tmp_path / "start")
    more = replace(first, start=start, seed=7)
    ends = [made(replace(more, start_share=share), tmp_path / f"kept-{share}") for share in (0.0, 0.25, 1.0)]
    before, learned, mixed, kept = (learned_tensors(folder) for folder in (start, *ends))
    assert any(not torch.equal(tensor, before[name]) for name, tensor in learned.items())
    for name, tensor in before.items():
        torch.testing.assert_close(kept[name], tensor)
        torch.testing.assert_close(mixed[name], 0.75 * learned[name] + 0.25 * tensor)


def test_start_share_keeps_a_part_of_the_tuned_base(tmp_path: Path) -> None:
    first = on_disk(tmp_path, replace(LORA, epochs=0.3))
    start = made(first, tmp_path / "start")
    more = replace(first, tuned_base=start, seed=7)
    ends = [made(replace(more, start_share=share), tmp_path / f"kept-{share}") for share in (0.0, 0.25)]
    before, learned, mixed = (load_file(f"{folder}/{DELTA}") for folder in (start, *ends))
    assert any(not torch.equal(tensor, before[name]) for name, tensor in learned.items())
    for name, tensor in before.items():
        torch.testing.assert_close(mixed[name], 0.75 * learned[name] + 0.25 * tensor)


def learned_tensors(checkpoint: str) -> dict[str, torch.Tensor]:
    """Return a checkpoint's graft, and its base as the low-rank factors or changes that it stores."""
    tensors = {**load_file(f"{checkpoint}/{GRAFT}"), **load_file(f"{checkpoint}/{DELTA}")}
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


@pytest.mark.parametrize(
    ("begins", "goes_on", "residual"),
    [(LORA, LORA, "mean"), (JOINT, LORA, "last"), (JOINT, replace(JOINT, learns=("stop_head",)), "mean")],
)
def test_training_continues_from_a_checkpoint(
    tmp_path: Path, begins: Stage, goes_on: Stage, residual: Literal["mean", "last"]
) -> None:
    """A run that learns next to nothing keeps all weights, also with another `merge_residual`."""
    first = on_disk(tmp_path, replace(begins, epochs=0.5))
    start = made(first, tmp_path / "first")
    shape = replace(SHAPE, merge_residual=residual)
    end = made(replace(first, start=start, shape=shape, stages=(still(goes_on),)), tmp_path / "second")
    before, after = load_checkpoint(start), load_checkpoint(end)
    plain, learned = load_base(first.base).state, before.model.base.state_dict()
    assert any(not torch.equal(learned[name], plain[name]) for name in plain)
    assert after.manifest["provenance"]["start"] == before.manifest["provenance"]
    assert (after.model.config.merge_residual, after.model.embedder.residual) == (residual, residual)
    same_weights(after.model, before.model, 1e-5)


@pytest.mark.parametrize("stage", [LORA, JOINT])
def test_run_continues_from_the_mean_of_checkpoints(tmp_path: Path, stage: Stage) -> None:
    recipe = on_disk(tmp_path, replace(stage, epochs=0.3))
    first = made(recipe, tmp_path / "first")
    second = made(replace(recipe, start=first), tmp_path / "second")
    one, two = (begun(replace(recipe, start=start)).state_dict() for start in (first, second))
    recipe = replace(recipe, start=first, more_starts=(second, second))  # twice counts twice
    for name, tensor in begun(recipe).state_dict().items():
        expected = (one[name] + 2 * two[name]) / 3 if tensor.is_floating_point() else one[name]
        torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=1e-5, msg=name)
    assert any(not torch.equal(one[name], two[name]) for name in one)


def test_start_of_another_shape_is_refused(tmp_path: Path) -> None:
    recipe = on_disk(tmp_path, replace(LORA, epochs=0.1))
    first = made(recipe, tmp_path / "first")
    second = made(replace(recipe, start=first), tmp_path / "second")
    with pytest.raises(ConfigError, match="first: its shape is not the recipe's"):
        begun(replace(recipe, start=first, shape=replace(SHAPE, micro_layers=2)))
    own = str(save(tmp_path / "own", load_checkpoint(first).model))  # with the base that it changed
    with pytest.raises(ConfigError, match="own: its base is not the recipe's"):
        begun(replace(recipe, start=own))
    (tmp_path / "second" / "base_delta.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"second: changes its base differently from .*first"):
        begun(replace(recipe, start=first, more_starts=(second,)))
    ones, others = ({"draft_vocab": torch.tensor(tokens)} for tokens in ([1, 2], [1, 3]))
    with pytest.raises(ConfigError, match="draft_vocab differs between the checkpoints"):
        mean_state([ones, others])


@pytest.mark.parametrize("begins", [LORA, JOINT])
def test_graft_of_another_shape_accepts_a_tuned_base(tmp_path: Path, begins: Stage) -> None:
    first = on_disk(tmp_path, replace(begins, learns=("base",), epochs=0.5))
    tuned = made(first, tmp_path / "tuned")
    stage = replace(still(LORA), loss=LossWeights(features=1.0))
    shape = replace(SHAPE, micro_layers=2, merge_residual="last")
    second = replace(first, tuned_base=tuned, shape=shape, stages=(stage,))
    before, after = load_checkpoint(tuned), load_checkpoint(made(second, tmp_path / "second"))
    assert after.model.config.micro_layers == 2
    for name, tensor in before.model.base.state_dict().items():
        torch.testing.assert_close(after.model.base.state_dict()[name], tensor, atol=1e-6, rtol=1e-5)
    assert after.manifest["provenance"]["tuned_base"] == before.manifest["provenance"]
    # the tuned base, not the plain one, is whose features merged text should give: unmerged it gives them
    data = DistilledData.load(Path(second.data))
    trainer = Trainer(second, begun(second), data, lambda line: None, device="cpu")
    prepare(trainer.model, stage, bf16=False)
    batches = trainer.batches(None, 0)
    groups = batches.build(batches.plan(0)[0]).groups
    distances = Objective(trainer.model, stage.loss).distances(trainer.model.features(groups), groups)
    assert distances.max() < 1e-9
    with pytest.raises(ConfigError, match="brings a base that was trained already"):
        replace(second, start=tuned)


@pytest.mark.parametrize("origin", ["start", "tuned_base"])
def test_checkpoint_with_other_layers_is_refused(tmp_path: Path, origin: str) -> None:
    """Its low-rank update would fit, and change the wrong layers."""
    few = replace(on_disk(tmp_path, still(LORA)), base_layers=(0, 2))
    first = made(few, tmp_path / "first")
    assert load_checkpoint(first).manifest["base"]["layers"] == [0, 2]
    base, reference = find_base(few.base, layers=(1, 2))
    data = DistilledData.load(Path(few.data))
    assert reference["layers"] == [1, 2]
    with pytest.raises(ConfigError, match=r"keeps layers 0 2 of its base, the recipe layers 1 2: use the"):
        new_model(replace(few, base_layers=(1, 2), **{origin: first}), base, data)
    again = made(replace(few, **{origin: first}), tmp_path / "again")
    same_weights(load_checkpoint(again).model.base, load_checkpoint(first).model.base, 1e-6)


def test_tuned_base_that_reads_merged_text_keeps_its_embedder(tmp_path: Path) -> None:
    """It learns from features alone. Text without scores is cut, and judged, at random."""
    cuts, loss = Cuts(entropy=0.0, random=0.5), LossWeights(first=0.0, micro=0.0, features=1.0)
    stage = replace(LORA, learns=("base", "embedder"), epochs=0.5, cuts=cuts, loss=loss)
    recipe, lines = on_disk(tmp_path, stage), list[str]()
    tuned = train(recipe, tmp_path / "tuned", rows="fp32", report=lines.append)
    [told] = [line for line in lines if "held out, merged" in line]
    assert "features" in told
    assert "first_loss" in told
    assert judging_cuts(cuts) == Cuts(entropy=0.0, random=1.0)
    assert judging_cuts(Cuts()) == JUDGING_CUTS
    theirs = load_checkpoint(str(tuned)).model.embedder
    assert len(theirs.places) == 4
    recipe = replace(recipe, tuned_base=str(tuned))
    for most, both in ((6, 4), (3, 3)):  # groups may be longer or shorter
        ours = begun(replace(recipe, shape=replace(SHAPE, max_group_tokens=most))).embedder
        assert torch.equal(ours.key.weight, theirs.key.weight)
        assert torch.equal(ours.places[:both], theirs.places[:both])
    other = begun(replace(recipe, shape=replace(SHAPE, merge_residual="last"))).embedder
    assert not torch.equal(other.key.weight, theirs.key.weight)  # a slot that starts otherwise: new to learn


# -- means of the last steps' weights ------------------------------------------------------------------


def test_mean_is_of_the_last_steps() -> None:
    weight = torch.zeros(3)
    mean = WeightMean([weight], begins=2)
    for step in range(6):  # 0 1 | 2 3 4 5
        weight.fill_(step)
        with mean.in_place():
            assert weight[0] == (step if step < 3 else (1 + step) / 2)
        assert weight.tolist() == [step] * 3
        mean.add(step)
    again = WeightMean([weight], begins=2)
    again.load(mean.state())
    weight.fill_(6)
    again.add(6)
    again.exchange()
    assert weight.tolist() == [4.0] * 3


def test_stage_ends_with_the_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every step's weights from there on; that is also what is judged and saved."""
    seen: list[list[torch.Tensor]] = []
    add = WeightMean.add

    def watched(self: WeightMean, step: int) -> None:
        seen.append([parameter.detach().clone() for parameter in self.parameters])
        add(self, step)

    monkeypatch.setattr(WeightMean, "add", watched)
    trainer = toy_trainer(tmp_path, replace(SHORT, stages=(replace(JOINT, epochs=1, average=0.5),)))
    assert trainer.run()
    assert trainer.mean is not None
    last = seen[len(seen) - round(0.5 * len(seen)) :]
    for parameter, *steps in zip(trainer.mean.parameters, *last, strict=True):
        torch.testing.assert_close(parameter.detach(), torch.stack(steps).mean(0), atol=1e-6, rtol=1e-5)
    state = trainer.model.state_dict()
    saved = torch.load(tmp_path / "last.pt", weights_only=True)["model"]
    assert all(torch.equal(tensor, state[name]) for name, tensor in saved.items())
