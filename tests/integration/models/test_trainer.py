"""A toy training from end to end: it learns, survives a kill exactly, and goes on from a checkpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from places import environment
from toy_checkpoints import same_weights, save, write_hf
from toy_models import toy_model as random_model
from toy_training import JOINT, LORA, SHAPE, SHORT, short, toy_base, toy_model, toy_trainer
from training_data_files import DataFiles, ladders

from hamburger_edge.errors import ConfigError
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, Settings
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.distillation.data_manifest import Shard
from hamburger_edge.models.training.curves import plot
from hamburger_edge.models.training.data.batches import Cuts, DistilledData
from hamburger_edge.models.training.grafting import prepare
from hamburger_edge.models.training.metrics import read_metrics
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.optimizers import make_optimizers, schedule
from hamburger_edge.models.training.own_groups import own_lengths
from hamburger_edge.models.training.reading import JUDGING_CUTS, Reader, judging_cuts
from hamburger_edge.models.training.runs import merged, new_model, train
from hamburger_edge.models.training.trainer import Trainer
from hamburger_edge.models.training.training_recipe import Recipe, Stage
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend


def tokens_per_step(model: Hamburger, prompts: list[list[int]]) -> float:
    engine = Engine(TorchBackend(model.eval()))
    tokens, steps = 0, 0
    for prompt in prompts:
        sampler = Sampler(Settings().sampling, 97, model.draft_vocab.numpy(), top_probabilities=None)
        decoding = Decoding(max_tokens=12, confidence=0.7)
        for step in engine.run([(token,) for token in prompt], decoding, sampler, reuse="none"):
            tokens, steps = tokens + len(step.tokens), steps + 1
    return tokens / steps


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, dict[str, float], dict[str, float]]:
    """A trained toy, and held-out metrics before and after."""
    trainer = toy_trainer(tmp_path_factory.mktemp("run"))
    objective = Objective(trainer.model, LossWeights())
    before = trainer.judge(objective, Cuts())
    before["tokens_per_step"] = tokens_per_step(trainer.model, questions(trainer))
    assert trainer.run()
    after = trainer.judge(objective, Cuts())
    after["tokens_per_step"] = tokens_per_step(trainer.model, questions(trainer))
    return trainer, before, after


def questions(trainer: Trainer) -> list[list[int]]:
    data = trainer.data
    return [data.ids[data.starts[n] : data.starts[n] + 5].tolist() for n in trainer.split.held_out[:8]]


def test_training_learns_what_it_is_shown(trained: tuple) -> None:
    _, before, after = trained
    assert after["first_loss"] < 0.5 * before["first_loss"]
    assert after["micro_loss"] < 0.5 * before["micro_loss"]
    assert after["micro_agree_1"] > before["micro_agree_1"] + 0.3
    assert before["tokens_per_step"] == 1.0
    assert after["tokens_per_step"] > 1.4


def test_metrics_and_curves(trained: tuple) -> None:
    trainer, _, _ = trained
    series, begins = read_metrics(trainer.out / "metrics.jsonl")
    assert list(begins) == ["plain", "joint"]
    assert begins["plain"] == 0 < begins["joint"]
    merged_steps = list(series["held_out_merged", "first_loss"])
    assert merged_steps == sorted(merged_steps)
    assert min(merged_steps) > begins["joint"]  # nothing is merged in the first stage
    assert plot(trainer.out).read_bytes().startswith(b"\x89PNG")


def test_what_was_logged_twice_counts_once(tmp_path: Path) -> None:
    lines = [("a", 10, 5.0), ("a", 20, 4.0), ("a", 10, 3.0), ("b", 10, 2.0)]
    text = [json.dumps({"kind": "train", "stage": s, "step": n, "micro_loss": v}) for s, n, v in lines]
    (tmp_path / "metrics.jsonl").write_text("\n".join(text))
    series, begins = read_metrics(tmp_path / "metrics.jsonl")
    assert series == {("train", "micro_loss"): {10: 3.0, 20: 4.0, 30: 2.0}}
    assert begins == {"a": 0, "b": 20}
    with pytest.raises(ConfigError, match=r"nowhere.*no metrics"):
        read_metrics(tmp_path / "nowhere")


def test_held_out_figures_are_of_every_conversation(tmp_path: Path) -> None:
    """However many fit a batch: conversations of a short last one were neither judged nor calibrated by."""
    found = []
    for rows in (3, 500):
        trainer = toy_trainer(tmp_path / str(rows), replace(SHORT, rows=rows, judge_batches=10**6))
        objective = Objective(trainer.model, LossWeights()).eval()
        plan = trainer.reader.batches(trainer.split.held_out, JUDGING_CUTS, seed=2).plan(0)
        assert len(plan[-1]) < rows
        judged = trainer.judge(objective, JUDGING_CUTS)
        calibrated = trainer.calibrate()
        fitted = [sum(calibrated.before.counts), calibrated.scale, calibrated.offset]
        found.append((judged, fitted))
    (judged, fitted), (judged_at_once, fitted_at_once) = found
    assert judged == pytest.approx(judged_at_once, abs=1e-3)
    assert fitted == pytest.approx(fitted_at_once, abs=1e-3)


def test_own_groups_are_of_every_conversation(trained: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, *_ = trained
    monkeypatch.setattr(trainer.reader, "recipe", replace(trainer.recipe, rows=30))
    assert len(trainer.reader.batches(trainer.split.train, None, 0).plan(0)[-1]) < 30
    objective = Objective(trainer.model, LossWeights()).eval()
    found = trainer._own_lengths(JOINT, objective)
    reader = Reader(replace(trainer.recipe, rows=500), trainer.model, trainer.data, trainer.device)
    at_once = own_lengths(objective, reader.batches(trainer.split.train, None, 0), trainer.device)
    assert (at_once > 1).sum() > 500
    assert (found != at_once).sum() < 3  # but for near ties


def test_the_draft_vocab_is_chosen_by_training_text_alone(tmp_path: Path) -> None:
    """A token that held-out answers alone are full of got in, and figures of those were too good."""
    recipe, data = on_disk(tmp_path, JOINT), ladders(500)
    base, alike = load_base(recipe.base), new_model(recipe, load_base(recipe.base), data).draft_vocab
    for number in data.split(recipe.held_out).held_out:
        start, stop = data.starts[number : number + 2]
        data.top_ids[start:stop, 0] = 96
    assert 96 not in alike
    assert new_model(recipe, base, data).draft_vocab.tolist() == alike.tolist()


def test_calibration_of_a_trained_model_holds_on_other_questions(trained: tuple) -> None:
    trainer, _, _ = trained
    last = trainer.model.stop_head[-1]
    with torch.no_grad():  # spoil the head: too sure of everything
        last.weight.mul_(2.5)
        last.bias.mul_(2.5).sub_(2.0)
    found = trainer.calibrate()
    assert found.before.error > 1.5 * found.after.error
    assert found.after.error < 0.12  # of a few hundred places
    assert f"by {found.after.error:.3f} on average" in str(found)


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_killed_and_run_again_it_ends_with_the_same_weights(tmp_path: Path, lora_rank: int) -> None:
    """Killed in the middle of the second stage, where it waits for that."""
    whole = toy_trainer(tmp_path / "whole", short(lora_rank))
    assert whole.run()
    program = (
        "from pathlib import Path\n"
        "from toy_training import short, toy_trainer\n"
        f"trainer = toy_trainer(Path({str(tmp_path / 'killed')!r}), short({lora_rank}))\n"
        "save = trainer._save\n"
        "def save_and_wait(*words):\n"
        "    save(*words)\n"
        "    if (trainer.reached.stage, trainer.reached.step) == (1, 4):\n"
        "        import time; time.sleep(600)\n"
        "trainer._save = save_and_wait\n"
        "trainer.run()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env=environment())
    last = tmp_path / "killed" / "last.pt"
    try:
        while not (last.exists() and _where(last) >= (1, 4)):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert _where(last) == (1, 4)
    resumed = toy_trainer(tmp_path / "killed", short(lora_rank))
    assert resumed.run()
    same_weights(resumed.model, whole.model)


def _where(path: Path) -> tuple[int, int]:
    progress = torch.load(path, weights_only=True)["progress"]
    return progress["stage"], progress["step"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_minutes_stop_a_run_and_running_again_goes_on(tmp_path: Path, optimizer: str) -> None:
    recipe = replace(SHORT, optimizer=optimizer)
    whole = toy_trainer(tmp_path / "whole", recipe, conversations=100)
    assert whole.run()
    stopped = toy_trainer(tmp_path / "stopped", recipe, conversations=100)
    assert not stopped.run(minutes=0)  # one step
    assert _where(tmp_path / "stopped" / "last.pt") == (0, 1)
    stopped = toy_trainer(tmp_path / "stopped", recipe, conversations=100)
    assert stopped.run(minutes=1000)
    same_weights(stopped.model, whole.model)


def test_another_recipe_or_other_data_does_not_go_on_in_the_same_folder(tmp_path: Path) -> None:
    toy_trainer(tmp_path, SHORT).run(minutes=0)
    with pytest.raises(ConfigError, match=r"last\.pt: was made by another recipe"):
        toy_trainer(tmp_path, replace(SHORT, clip=0.5)).run()
    trainer = toy_trainer(tmp_path, SHORT)
    trainer.data.shards.append(Shard("more.safetensors", "0" * 64, 1, 1, 1, ()))
    with pytest.raises(ConfigError, match=r"last\.pt: was made with other data"):
        trainer.run()


def on_disk(folder: Path, stage: Stage) -> Recipe:
    """A recipe of this one stage, with a base and data of its own."""
    torch.set_num_threads(1)
    base = write_hf(folder / "base", random_model())
    DataFiles.write(folder / "data", ladders(200), {"base": str(base)})
    places = {"base": str(base), "data": str(folder / "data"), "out": str(folder / "out")}
    return replace(SHORT, stages=(stage,), **places)


def quiet(line: str) -> None:
    pass


def test_minutes_can_end_with_a_checkpoint(tmp_path: Path) -> None:
    """Of the mean of the steps so far, and the run goes on from its own weights."""
    recipe = on_disk(tmp_path, replace(LORA, average=1.0))
    assert train(recipe, tmp_path / "no", minutes=0, report=quiet) is None
    assert not (tmp_path / "no").exists()
    early = train(recipe, tmp_path / "early", minutes=0, finish=True, rows="fp32", report=quiet)
    assert early is not None
    saved = torch.load(tmp_path / "out" / "last.pt", weights_only=True)
    assert saved["mean"]["count"] == saved["progress"]["step"] == 2
    begun = load_checkpoint(early).model.state_dict()
    name = "embedder.query.weight"
    assert not torch.equal(begun[name], saved["model"][name])  # one step and the other are averaged
    assert train(recipe, tmp_path / "end", finish=True, rows="fp32", report=quiet) is not None


def test_a_start_with_a_base_of_its_own_is_refused(tmp_path: Path) -> None:
    recipe = on_disk(tmp_path, replace(LORA, epochs=0.1))
    model = load_checkpoint(train(recipe, tmp_path / "first", rows="fp32", report=quiet)).model
    with torch.no_grad():
        model.base.norm.weight += 1
    own = save(tmp_path / "own", model)
    with pytest.raises(ConfigError, match="own: its base is not the recipe"):
        train(replace(recipe, start=str(own), out=str(tmp_path / "two")), tmp_path / "second", report=quiet)


@pytest.mark.parametrize(("full", "precision"), [(True, "fp32"), (False, "fp32"), (False, "bf16")])
def test_merged_keeps_the_exact_base_and_what_was_learned(
    tmp_path: Path, full: bool, precision: Literal["fp32", "bf16"]
) -> None:
    """At bf16 the base is rounded while it is trained beside: what comes out stands on the exact one."""
    stage = replace(JOINT if full else LORA, epochs=0.3)
    recipe = replace(SHORT, stages=(replace(stage, name="only"),), out=str(tmp_path), precision=precision)
    base, data = toy_base(), ladders(300)
    model = toy_model(recipe)
    trainer = Trainer(recipe, model, data, lambda line: None, device="cpu")
    assert trainer.run()
    together, delta = merged(recipe, base, data, trainer.model)
    assert {name.rpartition(".")[2] for name in delta} == ({"delta"} if full else {"lora_a", "lora_b"})
    rebuilt = {name: tensor.clone() for name, tensor in base.state.items()}
    for name, tensor in delta.items():
        weight, _, kind = name.rpartition(".")
        if kind == "delta":
            rebuilt[weight] += tensor
        elif kind == "lora_b":
            rebuilt[weight] += tensor @ delta[f"{weight}.lora_a"]
    changed = 0
    for name, tensor in together.base.state_dict().items():
        torch.testing.assert_close(tensor, rebuilt[name], atol=1e-6, rtol=1e-5)
        changed += not torch.equal(tensor, base.state[name])
    assert changed > 0
    for name, tensor in together.micro.state_dict().items():
        assert torch.equal(tensor, trainer.model.micro.state_dict()[name])


def test_each_part_learns_at_its_own_rate_and_others_stay(tmp_path: Path) -> None:
    stage = Stage("s", ("stop_head", "base"), epochs=1, learning_rate=1e-3, base_learning_rate=1e-5)
    model = toy_model()
    groups = prepare(model, stage, bf16=False)
    assert [group["peak"] for group in groups] == [1e-5, 1e-3]
    only_base = prepare(model, replace(stage, learns=("base",)), bf16=False)
    assert [group["peak"] for group in only_base] == [1e-5]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recipe = replace(SHORT, stages=(replace(stage, epochs=0.2),), out=str(tmp_path))
    trainer = Trainer(recipe, model, ladders(300), lambda line: None, device="cpu")
    assert trainer.run()
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert {name.partition(".")[0] for name in moved} == {"base", "stop_head", "stop_evidence"}


def test_muon_moves_the_matrices_and_adamw_the_rest() -> None:
    model, recipe = toy_model(), replace(SHORT, optimizer="muon")
    stage = Stage("s", ("micro", "stop_head", "embedder", "base"), epochs=1, learning_rate=1e-3)
    groups = prepare(model, stage, bf16=False)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    muon, adamw = (
        [{names[id(p)] for p in group["params"]} for group in optimizer.param_groups]
        for optimizer in make_optimizers(model, groups, recipe)
    )
    assert "base.layers.0.mlp.up_proj.weight" in muon[0]
    assert {"micro.layers.0.self_attn.q_proj.weight", "embedder.query.weight"} < muon[1]
    assert {"base.embed_tokens.weight", "base.norm.weight"} < adamw[0]
    assert {"embedder.places", "embedder.output.bias", "stop_evidence"} < adamw[1]
    assert len(set.union(*muon, *adamw)) == sum(map(len, [*muon, *adamw])) == len(names)
    only_low_rank = prepare(model, replace(stage, learns=("base",), lora_rank=2), bf16=False)
    [alone] = make_optimizers(model, only_low_rank, recipe)
    assert isinstance(alone, torch.optim.Muon)


def test_schedule() -> None:
    rates = [schedule(step, 100, 0.1, 0.1) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:11] == pytest.approx([1.0, 1.0])
    assert rates == [*sorted(rates[:10]), *sorted(rates[10:], reverse=True)]
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    to_nothing = [schedule(step, 100, 0.1, 0.0) for step in range(100)]
    assert to_nothing[:10] == rates[:10]
    assert 0 < to_nothing[-1] < 0.001


def test_a_stage_may_learn_from_features_alone(tmp_path: Path) -> None:
    loss = LossWeights(first=0.0, micro=0.0, features=1.0)
    stage = replace(LORA, learns=("embedder", "base"), epochs=0.3, loss=loss)
    trainer = toy_trainer(tmp_path, replace(SHORT, stages=(stage,)), conversations=200)
    assert trainer.run()
    looks = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    held_out = [look for look in looks if look["kind"] == "held_out_merged"]
    assert held_out
    assert all({"features", "first_loss"} <= look.keys() for look in held_out)


def test_more_epochs_than_batches_of_the_first(tmp_path: Path) -> None:
    """Random cuts make epochs of unequal length: running out of batches must not end a run."""
    recipe = replace(SHORT, stages=(replace(JOINT, epochs=12, cuts=Cuts(entropy=0.3, random=0.5)),), rows=1)
    trainer = toy_trainer(tmp_path, replace(recipe, judge_every=10**6), conversations=60)
    batches = trainer.batches(recipe.stages[0].cuts, 0)
    assert len({len(batches.plan(epoch)) for epoch in range(12)}) > 1
    assert trainer.run()


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [(LORA, LORA), (JOINT, JOINT), (JOINT, LORA), (JOINT, replace(JOINT, learns=("stop_head",)))],
)
def test_training_goes_on_from_a_checkpoint(tmp_path: Path, begins: Stage, goes_on: Stage) -> None:
    """A second run that learns next to nothing ends where the first did, base changes included."""
    first = on_disk(tmp_path, replace(begins, epochs=0.5))
    start = train(first, tmp_path / "first", rows="fp32", report=quiet)
    still = replace(goes_on, epochs=0.1, learning_rate=1e-12, base_learning_rate=1e-12)
    second = replace(first, start=str(start), out=str(tmp_path / "two"), stages=(still,), calibrate=False)
    end = train(second, tmp_path / "second", rows="fp32", report=quiet)
    before, after = load_checkpoint(start), load_checkpoint(end)
    plain, learned = load_base(first.base).state, before.model.base.state_dict()
    assert any(not torch.equal(learned[name], plain[name]) for name in plain)
    assert after.manifest["provenance"]["start"] == before.manifest["provenance"]
    same_weights(after.model, before.model, 1e-5)


def test_what_a_merged_slot_starts_as_may_change_on_the_way_and_no_other_shape(tmp_path: Path) -> None:
    first = on_disk(tmp_path, replace(JOINT, epochs=0.1))
    start = train(first, tmp_path / "first", rows="fp32", report=quiet)
    still = replace(LORA, epochs=0.1, learning_rate=1e-12, base_learning_rate=1e-12)
    second = replace(first, start=str(start), stages=(still,), calibrate=False)
    over = replace(second, shape=replace(SHAPE, merge_residual="last"), out=str(tmp_path / "over"))
    changed = load_checkpoint(train(over, tmp_path / "changed", rows="fp32", report=quiet)).model
    assert (changed.config.merge_residual, changed.embedder.residual) == ("last", "last")
    same_weights(changed, load_checkpoint(start).model, 1e-5)
    other = replace(second, shape=replace(SHAPE, micro_layers=2), out=str(tmp_path / "three"))
    with pytest.raises(ConfigError, match="its shape is not the recipe's"):
        train(other, tmp_path / "third")


@pytest.mark.parametrize("begins", [LORA, JOINT])
def test_a_graft_of_another_shape_takes_a_tuned_base(tmp_path: Path, begins: Stage) -> None:
    first = on_disk(tmp_path, replace(begins, name="base", learns=("base",), epochs=0.5))
    tuned = train(first, tmp_path / "tuned", rows="fp32", report=quiet)
    still = replace(LORA, epochs=0.1, learning_rate=1e-12, base_learning_rate=1e-12)
    still = replace(still, loss=replace(still.loss, features=1.0))
    shape = replace(SHAPE, micro_layers=2, merge_residual="last")
    second = replace(
        first, tuned_base=str(tuned), shape=shape, out=str(tmp_path / "two"), stages=(still,), calibrate=False
    )
    end = train(second, tmp_path / "second", rows="fp32", report=quiet)
    before, after = load_checkpoint(tuned), load_checkpoint(end)
    assert after.model.config.micro_layers == 2
    for name, tensor in before.model.base.state_dict().items():
        torch.testing.assert_close(after.model.base.state_dict()[name], tensor, atol=1e-6, rtol=1e-5)
    assert after.manifest["provenance"]["tuned_base"] == before.manifest["provenance"]
    # the tuned base, not the plain one, is whose features merged text should give: unmerged it gives them
    data = DistilledData.load(Path(second.data))
    trainer = Trainer(second, new_model(second, load_base(second.base), data), data, quiet, device="cpu")
    prepare(trainer.model, still, bf16=False)
    batch = trainer.batches(None, 0)
    groups = batch.build(batch.plan(0)[0]).groups
    distances = Objective(trainer.model, still.loss).distances(trainer.model.features(groups), groups)
    assert distances.max() < 1e-9
    with pytest.raises(ConfigError, match="brings a base that was trained already"):
        replace(second, start=str(tuned))


@pytest.mark.parametrize(("most", "residual"), [(6, "mean"), (3, "mean"), (6, "last")])
def test_a_tuned_base_that_reads_merged_text_keeps_its_embedder(
    tmp_path: Path, most: int, residual: Literal["mean", "last"]
) -> None:
    """Its groups may be longer or shorter. What nobody has scored is cut, and judged, at random."""
    cuts = Cuts(entropy=0.0, random=0.5)
    reads = replace(LORA, name="tuning", learns=("base", "embedder"), epochs=0.5, cuts=cuts)
    lines: list[str] = []
    first = on_disk(tmp_path, replace(reads, loss=LossWeights(micro=0.0)))
    tuned = train(first, tmp_path / "tuned", rows="fp32", report=lines.append)
    assert any("held out, merged" in line for line in lines)
    assert judging_cuts(cuts) == Cuts(entropy=0.0, random=1.0)
    assert judging_cuts(Cuts()) == JUDGING_CUTS
    shape = replace(SHAPE, max_group_tokens=most, merge_residual=residual)
    second = replace(first, tuned_base=str(tuned), shape=shape)
    data = DistilledData.load(Path(second.data))
    ours = new_model(second, load_base(second.base), data).embedder
    theirs = load_checkpoint(tuned).model.embedder
    assert len(theirs.places) == 4
    both = min(most, 4)
    same = [
        torch.equal(ours.key.weight, theirs.key.weight),
        torch.equal(ours.places[:both], theirs.places[:both]),
    ]
    assert same == [residual == "mean"] * 2  # a slot that starts otherwise is another thing to learn
