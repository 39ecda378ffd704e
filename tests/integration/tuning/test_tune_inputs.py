"""Inputs of `tune`: unusable ones leave no files, others choose the layers, the tokens and the recipe."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.toys.toy_tasks import write_base, write_examples
from helpers.toys.toy_tuning import COMMAND, failing, write_task

from hamburger_edge import load
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.main import main
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.tuning import planning, tune_run
from hamburger_edge.tuning.tune_recipe import read_tune_recipe, write_tune_recipe

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a task: a base, examples and a recipe."""
    return write_task(tmp_path_factory.mktemp("task"))


def test_unusable_base_or_examples_leave_no_recipe_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed run once stored its recipe, which the next run with better inputs had to use."""
    base = write_base(tmp_path / "base")
    good = write_examples(tmp_path / "good.jsonl").read_text()
    for examples, more, error in (
        (pair("a"), ("--base", "nobody"), "nobody: neither a base of that name"),
        (pair("a b " * 200), (), "the base's context 128: shorten it or leave it out"),
        (pair("a"), (), "the hash that holds prompts out chooses too few of 1 examples"),
        (good, ("--held-out", tmp_path / "none.jsonl"), "none.jsonl: cannot be read"),
        (good, ("--judge", "false"), "false"),
    ):
        (tmp_path / "x.jsonl").write_text(examples)
        command = [tmp_path / "x.jsonl", "-o", tmp_path / "made", "--base", base, *more]
        assert error in failing(capsys, *command)
        assert not (tmp_path / "made.work").exists()


def pair(prompt: str) -> str:
    return json.dumps({"prompt": prompt, "answer": "b"}) + "\n"


@pytest.mark.parametrize("module", ["accelerate", "matplotlib"])
def test_missing_package_is_reported_before_the_first_step(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error once came after the fetch of the base, or after the training."""
    monkeypatch.setitem(sys.modules, module, None)
    examples = write_examples(tmp_path / "examples.jsonl")
    assert main(["tune", str(examples), "-o", str(tmp_path / "mine")]) == 1
    assert f"error: {module} is not installed: run  pip install '.[train]'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["examples.jsonl"]


def test_run_drops_layers_and_tokens_of_the_base_and_resumes_with_the_same_ones(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_base(tmp_path / "base", layers=5)
    changed = replace(read_tune_recipe(task / "recipe.toml"), base=str(base), more_answers=0, read=0)
    write_tune_recipe(tmp_path / "recipe.toml", changed)
    made = tmp_path / "made"
    given = ["--recipe", str(tmp_path / "recipe.toml"), "-o", str(made)]
    hurried = ["--minutes", "50"]  # skips the parity gate, which fails for this toy
    assert main([*COMMAND, *given, *hurried, "--layers", "3", "--tokens", "300"]) == 0
    errors = capsys.readouterr().err
    assert "3 of the base's 5 layers are kept: 0 " in errors
    assert "300 of the base's tokens are kept" in errors
    layers = read_tune_recipe(tmp_path / "made.work" / "recipe.toml").base_layers
    checkpoint = load_checkpoint(made)
    assert checkpoint.manifest["base"]["layers"] == list(layers)
    assert checkpoint.model.config.base.num_layers == 3
    assert checkpoint.model.config.base.vocab_size == Tokenizer(made / "tokenizer.json").vocab_size == 300
    with load(tmp_path / "made.bundle") as bundle, load(made, "torch") as reference:
        answers = [model.generate("say abc 1").groups for model in (bundle, reference)]
        assert answers[0] == answers[1]
    assert main([*COMMAND, "-o", str(made), *hurried]) == 0
    assert "nothing is left to train" in capsys.readouterr().err
    assert "this run began with layers 3" in failing(capsys, "-o", made, "--layers", "4")
    other = ["-o", tmp_path / "other", *given[:2], "--layers", "6"]
    assert "layers is 6, but this base has 5: give 2 to 5" in failing(capsys, *other)
    other[-2:] = ["--tokens", "100"]
    assert "tokens is 100, but this base has 3" in failing(capsys, *other)
    assert not (tmp_path / "other.work").exists()
    others = [0, 1, 4] if layers == (0, 2, 3) else [0, 2, 3]  # than the examples choose
    write_into(made, base=checkpoint.manifest["base"] | {"layers": others})
    write_tune_recipe(tmp_path / "recipe.toml", replace(changed, start=str(made), layers=3, tokens=300))
    assert main([*COMMAND, *given[:2], "-o", str(tmp_path / "more"), *hurried]) == 0
    assert load_checkpoint(tmp_path / "more").manifest["base"]["layers"] == others


def test_default_recipe_depends_on_the_examples_and_the_time_limit(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without a recipe stores its chosen recipe, and `--minutes` shortens each stage."""
    monkeypatch.setattr(planning, "FEWEST", 100)
    monkeypatch.setattr(tune_run, "HURRIED", 0.0)
    (tmp_path / "held.jsonl").write_text("\n".join((task / "held_out.jsonl").read_text().splitlines()[:60]))
    options = [str(task / "examples.jsonl"), "--base", str(task / "base"), "-o", str(tmp_path / "made")]
    more = ["--minutes", "0.001", "--held-out", str(tmp_path / "held.jsonl"), "--precision", "int8"]
    more += ["--more-answers", "150", "--merge"]
    assert main([*COMMAND, *options, *more]) == 0
    printed = capsys.readouterr()
    assert "the tuned base answers 100 of 150 prompts, from which the graft learns, too" in printed.err
    assert main([*COMMAND, *options, *more]) == 0
    assert "nothing is left to train" in capsys.readouterr().err
    assert "learning to answer ..." in printed.err
    for figure in ("first_kl", "micro_agree", "calibrated", "slots/s"):  # metrics.jsonl stores them
        assert figure not in printed.err
    assert "first_kl" in (tmp_path / "made.work" / "tuning" / "metrics.jsonl").read_text()
    assert "these scores are noise, since one answer is 10.0 points" in printed.out
    rows = (tmp_path / "made.work" / "wrong.jsonl").read_text().splitlines()
    assert f"wrong answers: {len(rows)} of 10" in printed.out
    assert "next: rules would do: nearest example alone scores 100.0" in printed.out
    assert "0.001 minutes: 1 steps of the base (0." in printed.err
    assert "too short to be useful, give --minutes " in printed.err
    assert "10 of 60 held-out examples, the fewest, are evaluated in the time that is left" in printed.err
    chosen = read_tune_recipe(tmp_path / "made.work" / "recipe.toml")
    assert chosen.tuning is not None
    assert chosen.graft is not None
    assert chosen.tuning.stages[0].epochs < 1  # without a limit it is 2
    assert chosen.graft.shape.merge_residual == "last"
    assert chosen.scored == chosen.read == 100
    work = tmp_path / "made.work"
    whole, *parts = (DistilledData.load(work / folder) for folder in ("examples", "scored", "read"))
    for part in parts:
        assert 90 <= len(part) <= 103 < len(whole)
        assert all(getattr(part.split(0.05), side) for side in ("train", "calibration", "held_out"))
    assert not (work / "probe").exists()
    evaluation = json.loads((work / "evaluation.json").read_text())
    assert evaluation["asked"]["judge"] == "fields"
