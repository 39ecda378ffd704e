"""`hamburger-edge eval` end to end: the report, --recommend and --certainty."""

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


def test_report_compares_pytorch_fp32_and_int4(
    run_eval: Run, prompts: str, checkpoint: str, tiny_bundles: dict[str, str], tmp_path: Path
) -> None:
    """Float32 graphs generate PyTorch's tokens, int4 nearly; merging costs little in each."""
    pytest.importorskip("matplotlib")
    words = [checkpoint, tiny_bundles["fp32"], tiny_bundles["int4"], "--reference", checkpoint]
    words += ["--threads", "1", "--prompts", prompts, "--confidence", "0.8", "--max-tokens", "40"]
    code, out, err = run_eval(
        *words, "--report", str(tmp_path / "all.json"), "--plot", str(tmp_path / "plots")
    )
    assert code == 0, err
    report = json.loads((tmp_path / "all.json").read_text())
    assert report["base"]["name"] == "tiny (plain base, torch fp32)"
    assert "in float32 PyTorch" in report["base"]["description"]
    torch_rows, fp32_rows, int4_rows = (model["rows"] for model in report["models"])
    assert torch_rows[0]["all"] == {**report["base"]["all"]}
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
    # int4 generates other text, which the float32 base would choose less often
    assert 0.8 < int4_rows[0]["all"]["agreement"] < 1
    assert {loss["model"] for loss in report["losses"]} == {model["name"] for model in report["models"]}
    [skipped] = report["skipped"]
    assert (skipped["prompt"], len(skipped["models"])) == (4, 4)
    assert "skipped, longer than the context: 1 (too long)\n" in out
    for name in ("quality.png", "reliability.png"):
        assert (tmp_path / "plots" / name).read_bytes().startswith(b"\x89PNG")
        assert name in err


def test_bundle_is_its_own_reference_by_default(
    run_eval: Run, prompts: str, tiny_bundles: dict[str, str]
) -> None:
    words = ["--threads", "1", "--prompts", prompts, "--confidence", "0.9", "--max-tokens", "24"]
    code, out, err = run_eval(tiny_bundles["fp32"], *words, "--json")
    assert code == 0, err
    report = json.loads(out)
    [model] = report["models"]
    assert report["base"]["name"] == model["name"] == "fp32 (onnx fp32)"
    assert [row["confidence"] for row in model["rows"]] == [1.0, 0.9]
    assert model["rows"][0]["all"] == report["base"]["all"]
    assert report["losses"][0]["weights_nll"] == 0
    assert "at 1 ..." in err


def test_llama_cpp_bundle_is_evaluated(run_eval: Run, prompts: str) -> None:
    pytest.importorskip("llama_cpp")
    from helpers.toys.gguf_bundles import gguf_bundle

    words = ["--prompts", prompts, "--max-tokens", "12", "--confidence", "0", "--backend", "all"]
    code, out, err = run_eval(str(gguf_bundle("f32")[0]), *words, "--threads", "1", "--json")
    assert code == 0, err
    [model] = json.loads(out)["models"]
    assert (model["backend"], model["precision"]) == ("llamacpp", "f32")
    plain, merged = (row["all"] for row in model["rows"])
    assert plain["agreement"] > 0.95  # one call rounds differently from one token a call
    assert merged["tokens_per_step"] > 1


@pytest.mark.slow
def test_workers_report_the_figures_of_one_process(
    run_eval: Run, prompts: str, tiny_bundles: dict[str, str], cluster: Cluster
) -> None:
    """For the reference bundle and another one; the prompt beyond the context is skipped."""
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
    """Sums from the training text of `tiny`."""
    path = unmeasured.with_name("sums.jsonl")
    sums = [(a, b) for a in range(1, 11) for b in range(1, 13)]
    lines = (
        {"prompt": f"What is {a} plus {b}?", "kind": "sum", "check": {"type": "number", "value": a + b}}
        for a, b in sums
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_recommended_setting_is_written_and_used(
    run_eval: Run, bundle: Path, unmeasured: Path, questions: str
) -> None:
    before = load_manifest(bundle)
    assert before.recommended is None
    with hamburger_edge.load(bundle, threads=1) as model:
        assert model.info.recommended == UNMEASURED
    report = bundle.with_name("report.json")
    words = ["--prompts", questions, "--max-tokens", "16", "--threads", "1", "--report", str(report)]
    words += ["--points", "5"]  # 120 prompts cannot show a smaller loss
    words = [str(bundle), "--recommend", "--checkpoint", str(unmeasured), *words]
    stopped_run = bundle.with_name("bundle.answers.jsonl")  # the answers of a stopped run
    stopped_run.write_text("[]\n")
    assert (run_eval(*words)[0], load_manifest(bundle)) == (1, before)
    stopped_run.unlink()
    code, out, err = run_eval(*words)
    assert code == 0, err
    assert not stopped_run.exists()
    figures = json.loads(report.read_text())
    assert [row["name"] for row in figures["choosing"]] == ["plain", *MERGING, "verify-0.8"]
    plain, *others = figures["confirming"]
    assert (plain["name"], plain["prompts"]) == ("plain", 80)
    faster = sum(row["faster"] > 1 for row in figures["choosing"][1:])  # few are on a busy machine
    assert len(others) == min(2, faster)
    assert f"recommended: {figures['recommended']}" in out
    assert f"written into {bundle} and {unmeasured}" in out
    best = next(row for row in figures["confirming"] if row["name"] == figures["recommended"])
    assert best["name"] == "plain" or best["chance_of_loss"] <= 0.025
    assert plain["figures"]["sum"] > 0.5  # there is accuracy to lose
    after = load_manifest(bundle)
    assert after.recommended is not None
    assert vars(after.recommended) == best["setting"]
    assert after.fingerprint == before.fingerprint  # saved sessions still resume
    manifest = json.loads((unmeasured / "hamburger.json").read_text())
    assert manifest["recommended"] == best["setting"]
    sums = dict(reversed(line.split("  ")) for line in (unmeasured / "SHA256SUMS").read_text().splitlines())
    assert sums["hamburger.json"] == sha256(unmeasured / "hamburger.json")
    with hamburger_edge.load(bundle) as model:
        assert model.info.recommended == after.recommended


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--points", "2"], "--points is for --recommend"),
        (["--certainty", "--seed", "3"], "--seed has no part in --certainty"),
        (["--certainty", "--right", "101"], "--right must be above 0 to 100"),
        (["--off-topic", "builtin"], "--off-topic is for --certainty"),
        (["--recommend", "--off-topic", "builtin"], "--off-topic has no part in --recommend"),
        (["--certainty", "--recommend"], "two measurements"),
        (["--recommend", "--quick"], "no --quick"),
        (["--recommend", "--seed", "3"], "--seed has no part in --recommend"),
        (["--recommend", "--confidence", "1"], "settings below 1"),
        (["--recommend", "--points", "-1"], "--points must be above 0"),
        (["--recommend", "--checkpoint", "nowhere"], "nowhere: holds no hamburger.json"),
        (["--recommend", "--max-tokens", "4096"], "fewer --max-tokens"),
    ],
)
def test_wrong_options_are_refused(words: list[str], message: str, run_eval: Run, bundle: Path) -> None:
    code, _, err = run_eval(str(bundle), *words)
    assert code == 1
    assert message in err


# --certainty


def test_fitted_certainty_is_written_and_used(
    run_eval: Run, bundle: Path, unmeasured: Path, questions: str
) -> None:
    words = ["--prompts", questions, "--max-tokens", "24", "--threads", "1"]
    other = bundle.with_name("other.jsonl")
    other.write_text('{"prompt": "hi"}\n{"prompt": "Call mom."}\n{"prompt": "HELLO?"}\n')
    words += ["--off-topic", str(other), "--right", "70"]
    report = bundle.with_name("certainty.json")
    code, out, err = run_eval(
        str(bundle), "--certainty", "--checkpoint", str(unmeasured), *words, "--report", str(report)
    )
    assert code == 0, err
    figures = json.loads(report.read_text())
    assert (figures["fitted"], figures["judged"]) == (60, 60)
    assert [row["share"] for row in figures["answered"]] == [1, 0.9, 0.8, 0.7, 0.5]
    assert all(0 <= row["off_topic"] <= 1 for row in figures["answered"])
    assert "certainty fitted on 60 prompts, judged on 60 others and on 1 off-topic sentences" in out
    assert "for 70% right answers: min_certainty" in out
    assert figures["wanted"]["right"] == 0.7
    after = load_manifest(bundle)
    assert after.certainty is not None
    assert vars(after.certainty) == figures["certainty"]
    manifest = json.loads((unmeasured / "hamburger.json").read_text())
    assert manifest["certainty"] == figures["certainty"]
    with hamburger_edge.load(bundle, threads=1) as model:
        plain, verify = (
            model.generate("What is 7 plus 8?", mode=mode, max_tokens=24) for mode in ("plain", "verify")
        )
    assert plain.certainty is not None
    assert (plain.text, plain.certainty) == (verify.text, pytest.approx(verify.certainty, abs=1e-4))


def test_certainty_needs_an_answer_for_each_prompt(run_eval: Run, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"prompt": "Hi", "answer": "Hello"}\n')
    code, _, err = run_eval(str(bundle), "--certainty", "--prompts", str(path))
    assert (code, "1 prompts have an answer, 100 are needed" in err) == (1, True)
    path.write_text('{"prompt": "Hi", "answer": "Hello"}\n{"prompt": "Hi"}\n')
    code, _, err = run_eval(str(bundle), "--certainty", "--prompts", str(path))
    assert (code, "line 2: answer must be a text, got None" in err) == (1, True)
