"""`hamburger-edge eval --recommend`: what is found stands in bundle and checkpoint, and is used."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import hamburger_edge
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.loop.dial import UNMEASURED
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.support.files import sha256

MERGING = ("merge-0.95", "hybrid-0.95", "merge-0.9", "hybrid-0.9", "merge-0.8", "hybrid-0.8")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that nobody has measured."""
    folder = Path(shutil.copytree(ZOO / "tiny", tmp_path_factory.mktemp("recommend") / "tiny"))
    manifest = json.loads((folder / "hamburger.json").read_text())
    del manifest["recommended"]
    (folder / "hamburger.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tiny: Path) -> Path:
    folder = Path(shutil.copytree(tiny, checkpoint.with_name("bundle")))
    replace(load_manifest(folder), recommended=None).save(folder)
    return folder


@pytest.fixture(scope="module")
def questions(checkpoint: Path) -> str:
    """Sums that `tiny` knows."""
    path = checkpoint.with_name("sums.jsonl")
    sums = [(a, b) for a in range(1, 11) for b in range(1, 13)]
    lines = (
        {"prompt": f"What is {a} plus {b}?", "kind": "sum", "check": {"type": "number", "value": a + b}}
        for a, b in sums
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_what_is_found_is_written_and_used(
    run_eval: Run, bundle: Path, checkpoint: Path, questions: str
) -> None:
    before = load_manifest(bundle)
    assert before.recommended is None
    with hamburger_edge.load(bundle, threads=1) as model:
        assert model.info.recommended == UNMEASURED
    report = bundle.with_name("found.json")
    words = ["--prompts", questions, "--max-tokens", "16", "--threads", "1", "--json", str(report)]
    words += ["--points", "5"]  # 120 prompts are too few to show less
    code, out, err = run_eval(str(bundle), "--recommend", "--checkpoint", str(checkpoint), *words)
    assert code == 0, err
    found = json.loads(report.read_text())
    assert [row["name"] for row in found["choosing"]] == ["plain", *MERGING, "verify-0.8"]
    plain, *others = found["confirming"]
    assert (plain["name"], plain["prompts"]) == ("plain", 80)
    faster = sum(row["faster"] > 1 for row in found["choosing"][1:])  # beside a busy program, few are
    assert len(others) == min(2, faster)
    assert f"recommended: {found['recommended']}" in out
    assert f"written into {bundle} and {checkpoint}" in out
    best = next(row for row in found["confirming"] if row["name"] == found["recommended"])
    assert best["name"] == "plain" or best["chance_of_loss"] <= 0.025
    assert plain["figures"]["sum"] > 0.5  # it can do sums: there is something to lose
    after = load_manifest(bundle)
    assert after.recommended is not None
    assert vars(after.recommended) == best["setting"]
    assert after.fingerprint == before.fingerprint  # sessions go on
    told = json.loads((checkpoint / "hamburger.json").read_text())
    assert told["recommended"] == best["setting"]
    sums = dict(reversed(line.split("  ")) for line in (checkpoint / "SHA256SUMS").read_text().splitlines())
    assert sums["hamburger.json"] == sha256(checkpoint / "hamburger.json")
    with hamburger_edge.load(bundle) as model:
        assert model.info.recommended == after.recommended


def test_a_killed_run_goes_on(run_eval: Run, bundle: Path, questions: str) -> None:
    """It began anew, after hours of answers."""
    kept = bundle.with_name("bundle.answers.jsonl")
    words = [str(bundle), "--recommend", "--prompts", questions, "--confidence", "0.8"]
    words += ["--max-tokens", "16", "--threads", "1", "--points", "5"]
    with subprocess.Popen([sys.executable, "-m", "hamburger_edge", "eval", *words]) as process:
        while not kept.exists() or len(kept.read_bytes().splitlines()) < 6:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    before = kept.read_bytes().splitlines()
    assert 6 <= len(before) < 41
    code, _, err = run_eval(*words, "--max-tokens", "12")
    assert code == 1
    assert "bundle.answers.jsonl: holds answers to other questions" in err
    kept.rename(kept.with_suffix(".aside"))
    assert run_eval(*words, "--json", str(bundle.with_name("whole.json")))[0] == 0
    kept.with_suffix(".aside").rename(kept)
    assert run_eval(*words, "--json", str(bundle.with_name("resumed.json")))[0] == 0
    whole, resumed = (json.loads(bundle.with_name(f"{n}.json").read_text()) for n in ("whole", "resumed"))
    for one, other in zip(whole["choosing"], resumed["choosing"], strict=True):
        timed = {"milliseconds", "faster"}
        assert {k: v for k, v in one.items() if k not in timed} == {
            k: v for k, v in other.items() if k not in timed
        }
    assert not list(bundle.parent.glob("bundle.answers*.jsonl"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--points", "2"], "--points is for --recommend"),
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
