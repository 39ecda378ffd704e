"""`tune` on examples of a small task: the checkpoint, its figures, and the recommended setting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.places import contents, names
from helpers.toys.toy_tasks import write_examples
from helpers.toys.toy_tuning import COMMAND, READING, failing, write_task

from hamburger_edge import load
from hamburger_edge.bundle.inspection import describe, show
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.main import main
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION, read_calibration
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.tuning.data.examples import read_examples
from hamburger_edge.tuning.planning import Budget
from hamburger_edge.tuning.stages import plan
from hamburger_edge.tuning.task import read_task
from hamburger_edge.tuning.task import write_examples as write_task_examples
from hamburger_edge.tuning.tune_recipe import read_tune_recipe, write_tune_recipe
from hamburger_edge.tuning.tune_run import TuneRun

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base, examples and a recipe, in which `tune` has run."""
    folder = write_task(tmp_path_factory.mktemp("task"))
    paths = ["--recipe", str(folder / "recipe.toml"), "-o", str(folder / "made")]
    assert main([*COMMAND, *paths, "--report", str(folder / "figures.json")]) == 0
    return folder


def test_reading_stage_trains_the_base_on_groups_of_its_graft(task: Path) -> None:
    work = task / "made.work"
    [stage] = read_tune_recipe(work / "recipe.toml").reading.stages  # type: ignore[union-attr]
    assert stage.cuts is not None
    assert stage.cuts.agreement > 0.5
    grafted, made = (load_checkpoint(folder) for folder in (work / "grafted", task / "made"))
    for checkpoint, stage_name in ((grafted, "graft"), (made, "reading")):
        [trained] = checkpoint.manifest["provenance"]["recipe"]["stages"]
        assert trained["name"] == stage_name
    assert len(DistilledData.load(work / "read")) == len(DistilledData.load(work / "examples"))
    before, after = grafted.model.state_dict(), made.model.state_dict()
    changed = {name.split(".")[0] for name in before if not before[name].equal(after[name])}
    assert changed == {"base", "embedder", "micro", "stop_head", "stop_evidence"}


def test_tuned_model_learns_its_task_and_the_card_lists_its_figures(task: Path) -> None:
    figures = json.loads((task / "figures.json").read_text())
    assert [row["name"] for row in figures["choosing"]] == ["plain", "merge-0.0", "hybrid-0.0", "verify-0.0"]
    assert 0 < len(DistilledData.load(task / "made.work" / "more")) <= 20  # generated answers
    plain, merged, reread, verify = figures["choosing"]
    assert plain["figures"]["valid"] > 0.5  # after a few seconds of training
    assert plain["tokens_per_step"] == 1
    assert merged["tokens_per_step"] > 1.5
    assert merged["slots_per_token"] < plain["slots_per_token"]
    # at confidence 0 every token is certain, and the index makes drafts longer than a group
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
    assert "(curves.png)" in card
    assert (task / "made" / "curves.png").exists()
    assert all(f"\n## {title}\n" in card for title in ("Use", "Scores", "Data", "Limits", "Licences"))
    assert "| graft and update of the base | Apache-2.0 |" in card
    assert "| SHA-256 of `" in card
    low, high = figures["plain_range"]
    assert low <= figures["plain"]["score"] <= high
    names = ["most frequent", "field by field", "nearest example"]
    assert [baseline["name"] for baseline in figures["baselines"]] == names
    assert "| the model, plain |" in card
    # tuning also counts right answers: the agreement of tokens hides wrong ones
    lines = (task / "made.work" / "tuning" / "metrics.jsonl").read_text().splitlines()
    shares = [line["right"] for line in map(json.loads, lines) if line["kind"] == "answers"]
    assert shares
    assert all(0 <= share <= 1 for share in shares)
    assert abs(shares[-1] - figures["plain"]["score"]) <= 0.5  # of other prompts, without the graft


def test_card_lists_the_certainty_fitted_on_other_prompts(task: Path) -> None:
    report = json.loads((task / "figures.json").read_text())["certainty"]
    assert 10 <= report["fitted"] < 100  # of the calibration part and the held-out part of the examples
    assert report["judged"] == 120
    assert [row["share"] for row in report["answered"]] == [1, 0.9, 0.8, 0.7, 0.5]
    assert all(0 <= row["off_topic"] <= 1 for row in report["answered"])
    card = (task / "made" / "README.md").read_text()
    assert "| answered | certainty at least | right | off-topic passing |" in card
    assert f"Warning: {report['fitted']} prompts fit the certainty and 120 judge it" in card
    assert "min_certainty" in card
    assert "](reliability.svg)" in card
    assert (task / "made" / "reliability.svg").read_text().startswith("<svg")
    assert load_checkpoint(task / "made").manifest["certainty"] == report["certainty"]
    with load(task / "made.work" / "bundle") as model:
        assert model.generate("say abc 1").certainty is not None


def test_checkpoint_and_bundle_recommend_the_best_setting(task: Path) -> None:
    figures = json.loads((task / "figures.json").read_text())
    [best] = [row["setting"] for row in figures["confirming"] if row["name"] == figures["recommended"]]
    manifest = load_checkpoint(task / "made").manifest
    assert manifest["recommended"] == best
    assert manifest["recommended_precision"] == "fp32"  # that of the figures, for exports that name none
    bundle = task / "made.work" / "bundle"
    with load(bundle) as model, load(task / "made") as reference:
        for loaded in (model, reference):
            assert vars(loaded.info.recommended) == best
            assert loaded.chat().settings.decoding.confidence == best["confidence"]
        prompt = "say abc 1"
        setting = {"mode": best["mode"], "confidence": best["confidence"]}
        assert model.generate(prompt).groups == model.generate(prompt, **setting).groups
        assert model.encode("<|im_start|>") == [1]
        assert model.template.before_user == "<|im_start|>"
    assert "recommended " in show(describe(bundle))


def test_calibration_text_is_of_the_examples_but_not_the_held_out_ones(task: Path) -> None:
    text = read_calibration(task / "made" / CALIBRATION)
    examples = {
        (example.turns[0].prompt, example.answer)
        for example in read_examples(task / "examples.jsonl").examples
    }
    assert len(text) > 100
    assert {(example.prompt, example.answer) for example in text} < examples
    data = DistilledData.load(task / "made.work" / "examples")
    tokenizer = Tokenizer(load_checkpoint(task / "made").tokenizer)
    spans = [slice(*data.starts[number : number + 2]) for number in data.split(0.05).held_out]
    held_out = [tokenizer.decode(data.ids[span].tolist()) for span in spans]
    assert held_out
    assert not any(f"{example.prompt}<" in sequence for sequence in held_out for example in text)


def test_tune_writes_the_bundle_beside_the_checkpoint(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bundle once stayed in the working folder, and `export` of the checkpoint could refuse it."""
    folders = json.loads((task / "figures.json").read_text())
    assert folders["checkpoint"] == str(task / "made")
    assert folders["bundle"] == str(task / "made.bundle")
    assert contents(task / "made.bundle") == contents(task / "made.work" / "bundle")
    with load(task / "made.bundle") as model:
        assert model.generate("say abc 1", max_tokens=4).tokens
    (task / "taken.bundle").mkdir()
    (task / "taken.bundle" / "letter.txt").write_text("dear")
    error = failing(capsys, "-o", task / "taken", "--work", task / "made.work")
    assert "taken.bundle is not a bundle: it will not be replaced" in error


def test_second_run_trains_nothing(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This includes a recipe without a newer key, and a run with more minutes."""
    before = (task / "made.work" / "evaluation.json").read_bytes()
    weights = (task / "made" / "graft.safetensors").stat().st_mtime_ns
    manifest = task / "made.work" / "tuned" / "hamburger.json"
    written = json.loads(manifest.read_text())
    del written["provenance"]["recipe"]["step_batches"]
    manifest.write_text(json.dumps(written))
    assert main([*COMMAND, "-o", str(task / "made"), "--json", "--minutes", "90"]) == 0
    printed = capsys.readouterr()
    assert "steps of" not in printed.err  # nothing was trained
    assert (
        f"nothing is left to train: {task / 'made.work'} holds the trained model, which --minutes does not "
        "change; to train anew, delete that folder or name another --work" in printed.err
    )
    figures = json.loads((task / "figures.json").read_text())
    assert json.loads(printed.out)["confirming"] == figures["confirming"]
    assert (task / "made.work" / "evaluation.json").read_bytes() == before
    assert (task / "made" / "graft.safetensors").stat().st_mtime_ns >= weights


def test_run_of_a_given_recipe_reserves_time_for_its_export(task: Path, tmp_path: Path) -> None:
    """Only trainings without a recipe were timed: a continued run took longer by its export."""
    recipe, budget = read_tune_recipe(task / "recipe.toml"), Budget(50)
    run = TuneRun(tmp_path, budget, report=lambda line: None)
    toy_task = read_task(recipe, run)
    data = write_task_examples(toy_task, run)
    plan(recipe, toy_task, data, run)
    assert budget.export > 0


def test_tuned_model_learns_more_examples(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The base and the graft train together, and the model learns an answer to off-topic sentences."""
    none = json.dumps({"prompt": "hello", "answer": json.dumps({"said": None, "length": None})})
    examples = tmp_path / "examples.jsonl"
    examples.write_text((task / "examples.jsonl").read_text() + none + "\n")
    recipe = replace(
        read_tune_recipe(task / "recipe.toml"),
        examples=str(examples),
        tuning=None,
        graft=None,
        more_answers=0,
        reading=READING,
    )
    write_tune_recipe(tmp_path / "recipe.toml", recipe)
    command = [*COMMAND, "--recipe", str(tmp_path / "recipe.toml"), "-o", str(tmp_path / "more")]
    assert main([*command, "--continue", str(task / "made"), "--minutes", "59"]) == 0
    assert "off-topic sentences: 5" in capsys.readouterr().err
    assert not (tmp_path / "more.work" / "graft").exists()
    before, after = (load_checkpoint(folder) for folder in (task / "made", tmp_path / "more"))
    assert after.manifest["provenance"]["start"] == before.manifest["provenance"]
    changed = {
        name.split(".")[0]
        for name, tensor in after.model.state_dict().items()
        if not tensor.equal(before.model.state_dict()[name])
    }
    assert changed == {"base", "embedder", "micro", "stop_head", "stop_evidence"}
    curves = (tmp_path / "more" / "curves.png").read_bytes()
    assert curves == (tmp_path / "more.work" / "reading" / "curves.png").read_bytes()
    assert "![The last training: share" in (tmp_path / "more" / "README.md").read_text()
    other = [*map(str, ("tune", examples, "-o", tmp_path / "other", "--continue", task / "made"))]
    assert main([*other, "--layers", "2"]) == 1
    assert f"--layers: --continue takes that from {task / 'made'}: leave it out" in capsys.readouterr().err


def test_run_with_other_examples_than_its_first_is_refused(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "this run began with examples" in failing(capsys, task / "other.jsonl", "-o", task / "made")
    assert "give a file of EXAMPLES" in failing(capsys, "-o", task / "nothing")


def test_changed_judge_or_held_out_file_is_evaluated_again(task: Path) -> None:
    """The kept evaluation once depended on the names of both files, not on their content."""
    held_out, judge = write_examples(task / "changing.jsonl", 5, seed=9), task / "judge.py"
    program = "import sys\nfor line in sys.stdin: print({})\n"
    judge.write_text(program.format(0.5))
    recipe = read_tune_recipe(task / "recipe.toml")
    changed = replace(recipe, judge=f"python {judge}", held_out=str(held_out))
    write_tune_recipe(task / "changing.toml", changed)
    options = ["--recipe", str(task / "changing.toml"), "--work", str(task / "made.work")]

    def evaluation() -> Any:
        graft = task / "made.work" / "checkpoint" / "graft.safetensors"
        weights = graft.read_bytes()
        assert main([*COMMAND, *options, "-o", str(task / "changing")]) == 0
        assert graft.read_bytes() == weights  # nothing was trained
        return json.loads((task / "made.work" / "evaluation.json").read_text())

    first = evaluation()
    assert "recommended" not in json.loads((task / "changing" / "hamburger.json").read_text())  # of 5 prompts
    assert evaluation() == first
    judge.write_text(program.format(0.25))
    second = evaluation()
    assert [kept["found"]["confirming"][0]["score"] for kept in (first, second)] == [0.5, 0.25]
    write_examples(held_out, 5, seed=10)
    third = evaluation()
    assert third["asked"]["requests"] != second["asked"]["requests"]
    assert third["found"] != second["found"]


def test_tune_reports_the_calibration_text_or_leaves_it_out(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint for publication once contained 659 of 700 prompts and answers without a note."""
    command = [*COMMAND, "-o", str(task / "shared"), "--work", str(task / "made.work")]
    assert main(command) == 0
    held = len(read_calibration(task / "shared" / CALIBRATION))
    note = f"{CALIBRATION} holds prompts and answers of {held} of the "
    assert f"{task / 'shared'}: {note}" in capsys.readouterr().err
    assert note in (task / "shared" / "README.md").read_text()
    assert main([*command, "--no-calibration-text"]) == 0
    assert note not in capsys.readouterr().err
    assert CALIBRATION not in names(task / "shared")
    assert "holds no calibration text" in (task / "shared" / "README.md").read_text()
