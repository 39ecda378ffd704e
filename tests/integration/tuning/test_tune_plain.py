"""`tune` as its options are by default: a plain model, which a second run continues."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.toys.toy_tasks import write_base, write_examples
from helpers.toys.toy_tuning import COMMAND, PLAIN, TUNED

from hamburger_edge import load
from hamburger_edge.cli.main import main
from hamburger_edge.evaluation.asking import EvaluationPlan
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.tuning.tune_recipe import TuneRecipe, write_tune_recipe

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that a recipe made of 400 examples, in a folder with its base."""
    folder = tmp_path_factory.mktemp("plain")
    recipe = TuneRecipe(
        base=str(write_base(folder / "base")),
        examples=str(write_examples(folder / "examples.jsonl", 400)),
        precision="fp32",
        evaluation=EvaluationPlan(prompts=20, points=50.0, confidences=(0.0,)),
        tuning=replace(PLAIN, stages=(replace(TUNED, epochs=4),)),
    )
    write_tune_recipe(folder / "recipe.toml", recipe)
    paths = ["--recipe", str(folder / "recipe.toml"), "-o", str(folder / "made")]
    assert main([*COMMAND, *paths, "--report", str(folder / "figures.json")]) == 0
    return folder / "made"


def answers_alike(checkpoint: Path) -> list[str]:
    """Ask the bundle beside a checkpoint; every mode gives plain decoding's answers."""
    prompts = ["say abc 1", "say ede 23"]
    with load(f"{checkpoint}.bundle", threads=1) as model, load(checkpoint, threads=1) as reference:
        assert model.info.max_group_tokens == 1
        answers = [model.generate(prompt, mode="plain", max_tokens=30).text for prompt in prompts]
        for other in (model, reference):
            for mode in ("verify", "hybrid", "merge"):
                texts = [other.generate(prompt, mode=mode, max_tokens=30).text for prompt in prompts]
                assert texts == answers, mode
    return answers


def test_plain_model_has_no_graft(made: Path) -> None:
    work, figures = made.with_name("made.work"), json.loads(made.with_name("figures.json").read_text())
    assert [row["name"] for row in figures["choosing"]] == ["plain", "verify-0.0"]
    assert not (made / "graft.safetensors").exists()
    assert not [path for path in (work / "tuned", work / "scored", work / "graft") if path.exists()]
    bundle = made.with_name("made.bundle")
    assert sorted(path.name for path in bundle.glob("*.onnx")) == ["base.onnx", "embedder.onnx"]
    assert all(answer.startswith('{"said": "') for answer in answers_alike(made))


def test_plain_model_learns_more_examples(made: Path, tmp_path: Path) -> None:
    """By the command of the guide, without a recipe. This once failed at its own default."""
    examples = write_examples(tmp_path / "more.jsonl", 400, seed=2)
    command = [*COMMAND, str(examples), "-o", str(tmp_path / "more"), "--continue", str(made)]
    assert main([*command, "--precision", "fp32", "--minutes", "0.6"]) == 0
    before, after = (load_checkpoint(folder) for folder in (made, tmp_path / "more"))
    assert after.manifest["provenance"]["start"] == before.manifest["provenance"]
    weights = after.model.state_dict()
    changed = {name for name, tensor in before.model.state_dict().items() if not tensor.equal(weights[name])}
    assert changed
    answers_alike(tmp_path / "more")


def test_base_that_knows_the_task_stays_as_it_is(made: Path, tmp_path: Path) -> None:
    base, examples = made.with_name("base"), made.with_name("examples.jsonl")
    command = [*COMMAND, str(examples), "-o", str(tmp_path / "known"), "--base", str(base), "--no-tune-base"]
    assert main([*command, "--precision", "fp32", "--minutes", "0.6"]) == 0
    assert not (tmp_path / "known" / "base_delta.safetensors").exists()
    assert (tmp_path / "known" / "draft_index.bin").exists()
    answers_alike(tmp_path / "known")


@pytest.mark.parametrize("form", ["onnx", "gguf"])
def test_plain_checkpoint_passes_the_gate(made: Path, tmp_path: Path, form: str) -> None:
    if form == "gguf":
        pytest.importorskip("llama_cpp")
    out = tmp_path / form
    assert main(["export", str(made), "-o", str(out), "--format", form, "--precision", "fp32"]) == 0
    names = {"onnx": ["base.onnx", "embedder.onnx"], "gguf": ["base.gguf"]}[form]
    assert sorted(path.name for path in out.glob(f"*.{form}")) == names
    backend = {"onnx": "onnx", "gguf": "llamacpp"}[form]
    with load(out, backend, threads=1) as model, load(made, threads=1) as reference:
        texts = [part.generate("say abc 1", mode="verify", max_tokens=30).text for part in (model, reference)]
    assert texts[0] == texts[1]
