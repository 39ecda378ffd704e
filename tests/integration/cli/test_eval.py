"""`hamburger-edge eval` from outside: the tiny model end to end, and the mode that --recommend finds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import hamburger_edge
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.loop.dial import UNMEASURED
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.distillation.cluster import Cluster
from hamburger_edge.support.files import sha256

PROMPTS = [
    {"prompt": "What is 7 plus 5?", "kind": "sum", "check": {"type": "number", "value": 12}},
    {"prompt": "What is the capital of Norway?", "check": {"type": "contains", "value": "Oslo"}},
    {"prompt": "Count from 3 to 9.", "check": {"type": "exact", "value": "3, 4, 5, 6, 7, 8, 9."}},
    {"prompt": "Tell me a story about a fox and a bell."},
    {"prompt": "one two three " * 300, "kind": "too long"},
]
MERGING = ("merge-0.95", "hybrid-0.95", "merge-0.9", "hybrid-0.9", "merge-0.8", "hybrid-0.8")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("eval") / "prompts.jsonl"
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    return str(path)


@pytest.fixture(scope="module")
def tiny_bundles(exported_tiny: Callable[..., Path]) -> dict[str, str]:
    return {precision: str(exported_tiny(precision)) for precision in ("fp32", "int4")}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """tiny as a checkpoint alone: without the parts of its int8 bundle, PyTorch runs it."""
    parts = shutil.ignore_patterns("assembly")
    return str(shutil.copytree(ZOO / "tiny", tmp_path_factory.mktemp("zoo") / "tiny", ignore=parts))


def test_tiny_end_to_end(
    run_eval: Run, prompts: str, checkpoint: str, tiny_bundles: dict[str, str], tmp_path: Path
) -> None:
    """Float32 graphs say what PyTorch says; int4 strays a little; all of them lose little by merging."""
    pytest.importorskip("matplotlib")
    words = [checkpoint, tiny_bundles["fp32"], tiny_bundles["int4"], "--reference", checkpoint]
    words += ["--threads", "1", "--prompts", prompts, "--confidence", "0.8", "--max-tokens", "40"]
    code, out, err = run_eval(
        *words, "--report", str(tmp_path / "all.json"), "--plot", str(tmp_path / "plots")
    )
    assert code == 0, err
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["base"]["name"] == "tiny (plain base, torch fp32)"
    assert "in float32 PyTorch" in found["base"]["description"]
    torch_rows, fp32_rows, int4_rows = (model["rows"] for model in found["models"])
    assert torch_rows[0]["all"] == {**found["base"]["all"]}
    for ours, theirs in zip(fp32_rows, torch_rows, strict=True):
        for name in ("tokens_per_step", "agreement", "prefix", "right", "group_shares"):
            assert ours["all"][name] == theirs["all"][name], name
        assert ours["all"]["nll"] == pytest.approx(theirs["all"]["nll"], abs=1e-3)
    plain, merged = (row["all"] for row in fp32_rows)
    assert plain["checked"] == 3
    assert plain["right"] > 0.6
    assert plain["agreement"] == 1
    assert merged["tokens_per_step"] > 2
    assert merged["kv_compression"] > 2
    assert 0 < merged["kv_saved"] < 0.6
    assert merged["micro_agreement"] > 0.8
    assert merged["nll_difference"] < 0.3
    # int4's text is another text: not always a less likely one, but less often the base's own choice
    assert 0.8 < int4_rows[0]["all"]["agreement"] < 1
    assert {loss["model"] for loss in found["losses"]} == {model["name"] for model in found["models"]}
    [skipped] = found["skipped"]
    assert (skipped["prompt"], len(skipped["models"])) == (4, 4)
    assert "skipped, longer than the context: 1 (too long)\n" in out
    for name in ("quality.png", "reliability.png"):
        assert (tmp_path / "plots" / name).read_bytes().startswith(b"\x89PNG")
        assert name in err


def test_one_bundle_judges_itself(run_eval: Run, prompts: str, tiny_bundles: dict[str, str]) -> None:
    words = ["--threads", "1", "--prompts", prompts, "--confidence", "0.9", "--max-tokens", "24"]
    code, out, err = run_eval(tiny_bundles["fp32"], *words, "--json")
    assert code == 0, err
    found = json.loads(out)
    [model] = found["models"]
    assert found["base"]["name"] == model["name"] == "fp32 (onnx fp32)"
    assert [row["confidence"] for row in model["rows"]] == [1.0, 0.9]
    assert model["rows"][0]["all"] == found["base"]["all"]
    assert found["losses"][0]["weights_nll"] == 0
    assert "at 1 ..." in err


def test_llama_cpp_is_evaluated_like_the_others(run_eval: Run, prompts: str) -> None:
    pytest.importorskip("llama_cpp")
    from helpers.toys.gguf_bundles import gguf_bundle

    words = ["--prompts", prompts, "--max-tokens", "12", "--confidence", "0", "--backend", "all"]
    code, out, err = run_eval(str(gguf_bundle("f32")[0]), *words, "--threads", "1", "--json")
    assert code == 0, err
    [model] = json.loads(out)["models"]
    assert (model["backend"], model["precision"]) == ("llamacpp", "f32")
    plain, merged = (row["all"] for row in model["rows"])
    assert plain["agreement"] > 0.95  # reading in one go rounds otherwise than step by step
    assert merged["tokens_per_step"] > 1


@pytest.mark.slow
def test_workers_find_the_figures_of_one_process(
    run_eval: Run, prompts: str, tiny_bundles: dict[str, str], cluster: Cluster
) -> None:
    """Of the judge's own bundle and of another; and the prompt that is too long is left out."""
    words = [tiny_bundles["fp32"], tiny_bundles["int4"], "--threads", "1", "--prompts", prompts]
    words += ["--confidence", "0.8", "--max-tokens", "24", "--json"]
    code, alone, err = run_eval(*words)
    assert code == 0, err
    code, together, err = run_eval(*words, "--ray", "local", "--workers", "2")
    assert code == 0, err
    assert json.loads(together) == json.loads(alone)
    code, _, err = run_eval(tiny_bundles["fp32"], "--recommend", "--ray", "local")
    assert code == 1
    assert "--ray has no part in --recommend, which measures time" in err


# --recommend


@pytest.fixture(scope="module")
def unmeasured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without a recommendation."""
    folder = Path(shutil.copytree(ZOO / "tiny", tmp_path_factory.mktemp("recommend") / "tiny"))
    manifest = json.loads((folder / "hamburger.json").read_text())
    del manifest["recommended"]
    (folder / "hamburger.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def bundle(unmeasured: Path, tiny: Path) -> Path:
    folder = Path(shutil.copytree(tiny, unmeasured.with_name("bundle")))
    replace(load_manifest(folder), recommended=None).save(folder)
    return folder


@pytest.fixture(scope="module")
def questions(unmeasured: Path) -> str:
    """Sums that `tiny` knows."""
    path = unmeasured.with_name("sums.jsonl")
    sums = [(a, b) for a in range(1, 11) for b in range(1, 13)]
    lines = (
        {"prompt": f"What is {a} plus {b}?", "kind": "sum", "check": {"type": "number", "value": a + b}}
        for a, b in sums
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_what_is_found_is_written_and_used(
    run_eval: Run, bundle: Path, unmeasured: Path, questions: str
) -> None:
    before = load_manifest(bundle)
    assert before.recommended is None
    with hamburger_edge.load(bundle, threads=1) as model:
        assert model.info.recommended == UNMEASURED
    report = bundle.with_name("found.json")
    words = ["--prompts", questions, "--max-tokens", "16", "--threads", "1", "--report", str(report)]
    words += ["--points", "5"]  # 120 prompts are too few to show less
    words = [str(bundle), "--recommend", "--checkpoint", str(unmeasured), *words]
    kept = bundle.with_name("bundle.answers.jsonl")  # a stopped run goes on from these answers
    kept.write_text("[]\n")
    assert (run_eval(*words)[0], load_manifest(bundle)) == (1, before)
    kept.unlink()
    code, out, err = run_eval(*words)
    assert code == 0, err
    assert not kept.exists()
    found = json.loads(report.read_text())
    assert [row["name"] for row in found["choosing"]] == ["plain", *MERGING, "verify-0.8"]
    plain, *others = found["confirming"]
    assert (plain["name"], plain["prompts"]) == ("plain", 80)
    faster = sum(row["faster"] > 1 for row in found["choosing"][1:])  # beside a busy program, few are
    assert len(others) == min(2, faster)
    assert f"recommended: {found['recommended']}" in out
    assert f"written into {bundle} and {unmeasured}" in out
    best = next(row for row in found["confirming"] if row["name"] == found["recommended"])
    assert best["name"] == "plain" or best["chance_of_loss"] <= 0.025
    assert plain["figures"]["sum"] > 0.5  # it can do sums: there is something to lose
    after = load_manifest(bundle)
    assert after.recommended is not None
    assert vars(after.recommended) == best["setting"]
    assert after.fingerprint == before.fingerprint  # sessions go on
    told = json.loads((unmeasured / "hamburger.json").read_text())
    assert told["recommended"] == best["setting"]
    sums = dict(reversed(line.split("  ")) for line in (unmeasured / "SHA256SUMS").read_text().splitlines())
    assert sums["hamburger.json"] == sha256(unmeasured / "hamburger.json")
    with hamburger_edge.load(bundle) as model:
        assert model.info.recommended == after.recommended


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--points", "2"], "--points is for --recommend"),
        (["--certainty", "--seed", "3"], "--seed has no part in --certainty"),
        (["--certainty", "--recommend"], "two measurements"),
        (["--recommend", "--quick"], "no --quick"),
        (["--recommend", "--seed", "3"], "--seed has no part in --recommend"),
        (["--recommend", "--confidence", "1"], "settings below 1"),
        (["--recommend", "--points", "-1"], "--points must be above 0"),
        (["--recommend", "--checkpoint", "nowhere"], "nowhere: holds no hamburger.json"),
        (["--recommend", "--max-tokens", "4096"], "fewer --max-tokens"),
    ],
)
def test_wrong_command_lines(words: list[str], said: str, run_eval: Run, bundle: Path) -> None:
    code, _, err = run_eval(str(bundle), *words)
    assert code == 1
    assert said in err


# --certainty


def test_certainty_is_fitted_written_and_used(
    run_eval: Run, bundle: Path, unmeasured: Path, questions: str
) -> None:
    words = ["--prompts", questions, "--max-tokens", "24", "--threads", "1"]
    report = bundle.with_name("certainty.json")
    code, out, err = run_eval(
        str(bundle), "--certainty", "--checkpoint", str(unmeasured), *words, "--report", str(report)
    )
    assert code == 0, err
    found = json.loads(report.read_text())
    assert (found["fitted"], found["judged"]) == (60, 60)
    assert [row["share"] for row in found["answered"]] == [1, 0.9, 0.8, 0.7, 0.5]
    assert "certainty fitted on 60 prompts, judged on 60 others" in out
    after = load_manifest(bundle)
    assert after.certainty is not None
    assert vars(after.certainty) == found["certainty"]
    told = json.loads((unmeasured / "hamburger.json").read_text())
    assert told["certainty"] == found["certainty"]
    with hamburger_edge.load(bundle, threads=1) as model:
        plain, verify = (
            model.generate("What is 7 plus 8?", mode=mode, max_tokens=24) for mode in ("plain", "verify")
        )
    assert plain.certainty is not None
    assert (plain.text, plain.certainty) == (verify.text, pytest.approx(verify.certainty, abs=1e-4))


def test_answers_may_stand_beside_the_prompts(run_eval: Run, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"prompt": "Hi", "answer": "Hello"}\n')
    code, _, err = run_eval(str(bundle), "--certainty", "--prompts", str(path))
    assert (code, "1 prompts have an answer, 100 are needed" in err) == (1, True)
    path.write_text('{"prompt": "Hi", "answer": "Hello"}\n{"prompt": "Hi"}\n')
    code, _, err = run_eval(str(bundle), "--certainty", "--prompts", str(path))
    assert (code, "line 2: answer must be a text, got None" in err) == (1, True)
