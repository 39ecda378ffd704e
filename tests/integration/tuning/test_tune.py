"""From examples to a model that says which setting it is best asked with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from toy_tasks import write_base, write_examples

from hamburger_edge import load
from hamburger_edge.bundle.inspection import describe, show
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.main import main
from hamburger_edge.errors import ConfigError
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, read_calibration
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.tuning import planning, tune
from hamburger_edge.tuning.examples import read_examples
from hamburger_edge.tuning.tune_recipe import read_tune_recipe

RECIPE = """
base = "{base}"
examples = "{examples}"
held_out = "{held_out}"
precision = "fp32"
more_answers = 20

[evaluation]
prompts = 120
points = 50.0
confidences = [0.0]

[tuning]
row_slots = 128
precision = "fp32"
patience = 2
judge_every = 20
judge_batches = 1
calibrate = false

[tuning.shape]
taps = []
micro_layers = 1
merger_heads = 4
max_group_tokens = 2
initialise = "random"

[[tuning.stages]]
name = "tuning"
learns = ["base"]
epochs = 2
learning_rate = 1e-3
base_learning_rate = 5e-3
lora_rank = 8
loss = {{ micro = 0.0, hard = 0.0 }}

[graft]
row_slots = 128
precision = "fp32"
judge_every = 200
judge_batches = 1

[graft.shape]
taps = [0]
micro_layers = 1
merger_heads = 4
merge_residual = "last"
max_group_tokens = 8
initialise = "random"

[[graft.stages]]
name = "graft"
learns = ["embedder", "base", "micro", "stop_head"]
epochs = 1.5
learning_rate = 5e-3
base_learning_rate = 3e-3
lora_rank = 8
cuts = {{ entropy = 0.4, random = 0.3, low = [2.0], ratio = [0.9] }}
loss = {{ features = 0.5, micro_every = 2 }}
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base, examples and a recipe, in which `tune` has run."""
    folder = tmp_path_factory.mktemp("task")
    write_base(folder / "base")
    files = {
        "examples": write_examples(folder / "examples.jsonl", 500),
        "held_out": write_examples(folder / "held_out.jsonl", 120, seed=1),
    }
    recipe = RECIPE.format(base=folder / "base", **files)
    (folder / "recipe.toml").write_text(recipe)
    assert main([*COMMAND, *paths(folder), "--json", str(folder / "figures.json")]) == 0
    return folder


COMMAND = ["tune", "--threads", "1"]


def paths(folder: Path) -> list[str]:
    return ["--recipe", str(folder / "recipe.toml"), "-o", str(folder / "made")]


def test_the_base_learns_to_read_the_groups_of_its_graft(task: Path) -> None:
    work = task / "made.work"
    [stage] = read_tune_recipe(work / "recipe.toml").reading.stages  # type: ignore[union-attr]
    assert stage.cuts is not None
    assert stage.cuts.agreement > 0.5
    made, grafted = (
        load_checkpoint(folder).manifest["provenance"] for folder in (task / "made", work / "grafted")
    )
    assert [each["name"] for each in made["recipe"]["stages"]] == ["reading"]
    assert [each["name"] for each in grafted["recipe"]["stages"]] == ["graft"]
    assert len(DistilledData.load(work / "read")) == len(DistilledData.load(work / "examples"))
    before, after = (
        load_checkpoint(folder).model.state_dict() for folder in (work / "grafted", task / "made")
    )
    changed = {name.split(".")[0] for name in before if not before[name].equal(after[name])}
    assert changed == {"base", "embedder", "micro", "stop_head", "stop_evidence"}


def test_a_task_is_learned_and_its_figures_told(task: Path) -> None:
    figures = json.loads((task / "figures.json").read_text())
    assert [row["name"] for row in figures["choosing"]] == ["plain", "merge-0.0", "hybrid-0.0", "verify-0.0"]
    assert 0 < len(DistilledData.load(task / "made.work" / "more")) <= 20  # answers of its own
    plain, merged, reread, verify = figures["choosing"]
    assert plain["figures"]["valid"] > 0.5  # it had a few seconds
    assert plain["tokens_per_step"] == 1
    assert merged["tokens_per_step"] > 1.5
    assert merged["slots_per_token"] < plain["slots_per_token"]
    # at confidence 0 nothing is in doubt, and guesses of the index make a draft longer than a group
    assert reread["tokens_per_step"] > 0.95 * merged["tokens_per_step"]
    assert verify["same"] == 1  # in float32, plain decoding's answers
    assert verify["lost"] == 0
    plain, *others = figures["confirming"]
    shown = [row for row in others if row["chance_of_loss"] <= 0.025]
    best = max([plain, *shown], key=lambda row: row["faster"])
    assert figures["recommended"] == best["name"]
    card = (task / "made" / "README.md").read_text()
    assert "tuned to one task with" in card
    assert all(f"| {row['name']} |" in card for row in figures["choosing"])
    assert f"Recommended: {best['name']}" in card
    assert [one["name"] for one in figures["baselines"]] == [
        "most frequent",
        "field by field",
        "nearest example",
    ]
    assert "| the model, plain |" in card


def test_answers_are_counted_while_the_base_is_tuned(task: Path) -> None:
    """Agreement of tokens hides wrong answers, since most tokens of an answer are its form."""
    lines = (task / "made.work" / "tuning" / "metrics.jsonl").read_text().splitlines()
    looks = [line for line in map(json.loads, lines) if line["kind"] == "answers"]
    assert looks
    assert all(0 <= look["right"] <= 1 for look in looks)
    last = json.loads((task / "figures.json").read_text())["plain"]["score"]
    assert abs(looks[-1]["right"] - last) <= 0.5  # of other prompts, before the graft


def test_checkpoint_and_bundle_recommend_it(task: Path) -> None:
    figures = json.loads((task / "figures.json").read_text())
    [best] = [row["setting"] for row in figures["confirming"] if row["name"] == figures["recommended"]]
    manifest = load_checkpoint(task / "made").manifest
    assert manifest["recommended"] == best
    assert manifest["recommended_precision"] == "fp32"  # that of the figures, for exports that name none
    bundle = task / "made.work" / "bundle"
    with load(bundle) as model, load(task / "made") as reference:
        for each in (model, reference):
            assert vars(each.info.recommended) == best
            assert each.chat().settings.decoding.confidence == best["confidence"]
        prompt = "say abc 1"
        asked = {"mode": best["mode"], "confidence": best["confidence"]}
        assert model.generate(prompt).groups == model.generate(prompt, **asked).groups
        assert model.encode("<|im_start|>") == [1]
        assert model.template.before_user == "<|im_start|>"
    assert "recommended " in show(describe(bundle))


def test_a_checkpoint_is_rounded_by_what_it_learned(task: Path) -> None:
    text = read_calibration(task / "made" / CALIBRATION)
    examples = {(one.turns[0].prompt, one.answer) for one in read_examples(task / "examples.jsonl").examples}
    assert len(text) > 100
    assert {(each.prompt, each.answer) for each in text} < examples
    data = DistilledData.load(task / "made.work" / "examples")
    tokenizer = Tokenizer(load_checkpoint(task / "made").tokenizer)
    spans = [slice(*data.starts[number : number + 2]) for number in data.split(0.05).held_out]
    held_out = [tokenizer.decode(data.ids[span].tolist()) for span in spans]
    assert held_out
    assert not any(f"{each.prompt}<" in told for told in held_out for each in text)


def test_run_again_it_is_done_already(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (task / "made.work" / "evaluation.json").read_bytes()
    weights = (task / "made" / "graft.safetensors").stat().st_mtime_ns
    _as_before_a_key_was_added(task / "made.work" / "tuned" / "hamburger.json", "step_batches")
    assert main([*COMMAND, "-o", str(task / "made"), "--json", "-"]) == 0
    said = capsys.readouterr()
    assert "steps of" not in said.err  # nothing was trained
    figures = json.loads((task / "figures.json").read_text())
    assert json.loads(said.out)["confirming"] == figures["confirming"]
    assert (task / "made.work" / "evaluation.json").read_bytes() == before
    assert (task / "made" / "graft.safetensors").stat().st_mtime_ns >= weights


def _as_before_a_key_was_added(manifest: Path, key: str) -> None:
    written = json.loads(manifest.read_text())
    del written["provenance"]["recipe"][key]
    manifest.write_text(json.dumps(written))


def test_what_a_run_began_with_stays(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, str(task / "other.jsonl"), "-o", str(task / "made")]) == 1
    assert "this run began with examples" in capsys.readouterr().err
    assert main([*COMMAND, "-o", str(task / "nothing")]) == 1
    assert "give a file of EXAMPLES" in capsys.readouterr().err


def test_a_base_that_there_is_not_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its recipe would be what the next run, with a better base, goes on from."""
    (tmp_path / "one.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "d"}\n')
    options = [str(tmp_path / "one.jsonl"), "-o", str(tmp_path / "made"), "--base", "nobody"]
    assert main([*COMMAND, *options]) == 1
    assert "nobody: neither a base of that name" in capsys.readouterr().err
    assert not (tmp_path / "made.work").exists()


@pytest.mark.parametrize("module", ["accelerate", "matplotlib"])
def test_what_is_lacking_is_said_before_the_work(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It used to be said once the base was fetched and the examples read, or once training was done."""
    monkeypatch.setitem(sys.modules, module, None)
    examples = write_examples(tmp_path / "examples.jsonl")
    assert main(["tune", str(examples), "-o", str(tmp_path / "mine")]) == 1
    assert f"error: {module} is not installed: run  pip install '.[train]'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["examples.jsonl"]


def test_another_judge_asks_anew_without_training(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = (task / "recipe.toml").read_text().replace("prompts = 120", "prompts = 3")
    (task / "fewer.toml").write_text('judge = "distance"\n' + changed)
    options = ["--recipe", str(task / "fewer.toml"), "--work", str(task / "made.work"), "--json", "-"]
    assert main([*COMMAND, *options, "-o", str(task / "again")]) == 0
    said = capsys.readouterr()
    assert "steps of" not in said.err
    figures = json.loads(said.out)
    assert set(figures["confirming"][0]["figures"]) == {"exact"}
    assert 0 < figures["confirming"][0]["score"] <= 1
    assert figures["recommended"] is None  # of three prompts
    assert "recommended" not in json.loads((task / "again" / "hamburger.json").read_text())


def test_files_that_changed_under_their_names_are_asked_and_judged_anew(task: Path) -> None:
    """The evaluation was kept by the name of the held-out file and of the judge's script."""
    held_out, judge = write_examples(task / "changing.jsonl", 5, seed=9), task / "judge.py"
    said = "import sys\nfor line in sys.stdin: print({})\n"
    judge.write_text(said.format(0.5))
    recipe = (task / "recipe.toml").read_text().replace(str(task / "held_out.jsonl"), str(held_out))
    (task / "changing.toml").write_text(f'judge = "python {judge}"\n{recipe}')
    options = ["--recipe", str(task / "changing.toml"), "--work", str(task / "made.work")]

    def found() -> Any:
        graft = task / "made.work" / "checkpoint" / "graft.safetensors"
        weights = graft.read_bytes()
        assert main([*COMMAND, *options, "-o", str(task / "changing")]) == 0
        assert graft.read_bytes() == weights  # nothing was trained
        return json.loads((task / "made.work" / "evaluation.json").read_text())

    first = found()
    assert found() == first
    judge.write_text(said.format(0.25))
    second = found()
    assert [each["found"]["confirming"][0]["score"] for each in (first, second)] == [0.5, 0.25]
    write_examples(held_out, 5, seed=10)
    third = found()
    assert third["asked"]["requests"] != second["asked"]["requests"]
    assert third["found"] != second["found"]


def test_recipes_are_chosen_by_the_data_and_fit_the_time(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a recipe: what it chose is written out, and `--minutes` left next to no time for it."""
    monkeypatch.setattr(planning, "FEWEST", 100)
    monkeypatch.setattr(tune, "HURRIED", 0.0)
    (tmp_path / "held.jsonl").write_text("\n".join((task / "held_out.jsonl").read_text().splitlines()[:60]))
    options = [str(task / "examples.jsonl"), "--base", str(task / "base"), "-o", str(tmp_path / "made")]
    more = ["--minutes", "0.001", "--held-out", str(tmp_path / "held.jsonl"), "--precision", "int8"]
    assert main([*COMMAND, *options, *more]) == 0
    said = capsys.readouterr().err
    assert "0.001 minutes: 1 steps of the base (0." in said
    assert "too short to be useful, give --minutes " in said
    assert "40 of 60 held-out examples are evaluated in the time that is left" in said
    chosen = read_tune_recipe(tmp_path / "made.work" / "recipe.toml")
    assert chosen.tuning is not None
    assert chosen.graft is not None
    assert chosen.tuning.stages[0].epochs < 1  # without a limit it is 2
    assert chosen.graft.shape.merge_residual == "last"
    assert chosen.scored == chosen.read == 100
    whole, *parts = (
        DistilledData.load(tmp_path / "made.work" / each) for each in ("examples", "scored", "read")
    )
    for part in parts:
        assert 90 <= len(part) <= 103 < len(whole)
        assert all(getattr(part.split(0.05), side) for side in ("train", "calibration", "held_out"))
    assert not (tmp_path / "made.work" / "probe").exists()
    evaluation = json.loads((tmp_path / "made.work" / "evaluation.json").read_text())
    assert evaluation["asked"]["judge"] == "fields"


def test_bases_that_cannot_be_tuned(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {"prompt": "a b " * 200, "answer": "c"}
    (tmp_path / "long.jsonl").write_text(json.dumps(long) + "\n")
    options = [str(tmp_path / "long.jsonl"), "--base", str(task / "base"), "-o", str(tmp_path / "made")]
    assert main([*COMMAND, *options]) == 1
    assert "the base's context 128: shorten it or leave it out" in capsys.readouterr().err
    (tmp_path / "few.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    assert main([*COMMAND, str(tmp_path / "few.jsonl"), *options[1:], "--work", str(tmp_path / "w")]) == 1
    assert "the hash that holds prompts out chooses too few of 1 examples" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        read_tune_recipe(tmp_path / "none.toml")
