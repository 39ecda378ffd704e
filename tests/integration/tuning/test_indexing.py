"""`index` gives a bundle a draft index of the model's own answers: the same texts in fewer base calls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.without_extras import without_extras

import hamburger_edge.bundle.files as bundle_files
import hamburger_edge.cli.main as cli
from hamburger_edge import load
from hamburger_edge.bundle.files import check_files, put_draft_index
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.drafts.draft_index import DraftIndex, Guess, pack
from hamburger_edge.errors import BundleError

PROMPTS = [f"What is {count} plus {more}?" for count in range(2, 14) for more in range(3, 8)]
ANSWER = "import sys, hamburger_edge.cli.main as cli\nsys.exit(cli.main(sys.argv[1:]))"


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "bundle"))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return written(tmp_path / "prompts.jsonl", PROMPTS)


def written(path: Path, prompts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return path


def indexed(folder: Path, prompts: Path, *words: str, code: int = 0) -> Path:
    answers = folder.parent / "answers.jsonl"
    command = ["index", str(folder), "--prompts", str(prompts), "--examples", str(answers)]
    assert cli.main([*command, "--max-tokens", "40", "--threads", "1", "--least", "2", *words]) == code
    return answers


def answered(folder: Path, prompts: list[str]) -> tuple[list[str], int]:
    """Texts without micro steps, which an index replaces, and the base calls that they took."""
    with load(folder, threads=1) as model:
        results = [model.generate(prompt, max_tokens=40, mode="verify") for prompt in prompts]
    return [result.text for result in results], sum(result.stats.base_calls for result in results)


def test_an_index_of_own_answers_gives_the_same_texts_in_fewer_calls(
    folder: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [f"What is {count} plus {more}?" for count in range(14, 20) for more in range(3, 8)]
    texts, calls = answered(folder, others)
    answers = indexed(folder, prompts, "--json")
    told = json.loads(capsys.readouterr().out)
    assert [json.loads(line)["prompt"] for line in answers.read_text().splitlines()] == PROMPTS
    check_files(folder, load_manifest(folder), hashes=True)
    assert told["entries"] > 10
    assert told["tokens_per_call"] > 1.2
    again, fewer = answered(folder, others)
    assert again == texts
    assert fewer < calls


def test_answering_continues_after_a_cut_line_and_refuses_answers_to_other_prompts(
    folder: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = indexed(folder, prompts)
    whole = answers.read_bytes()
    index = (folder / "draft_index.bin").read_bytes()
    answers.write_bytes(whole[: len(whole) // 2])
    indexed(folder, prompts)
    assert answers.read_bytes() == whole
    assert (folder / "draft_index.bin").read_bytes() == index

    capsys.readouterr()
    indexed(folder, written(tmp_path / "others.jsonl", PROMPTS[::-1]), code=1)
    error = capsys.readouterr().err
    assert f"{answers}, line 1: does not answer prompt 1" in error
    assert "\n" not in error.strip()
    assert answers.read_bytes() == whole


def test_a_bundle_is_indexed_without_any_extra(folder: Path, prompts: Path, tmp_path: Path) -> None:
    words = ["index", folder, "--prompts", prompts, "--examples", tmp_path / "answers.jsonl"]
    done = without_extras(ANSWER, *words, "--max-tokens", "8", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "different answers" in done.stdout
    check_files(folder, load_manifest(folder), hashes=True)


@pytest.mark.parametrize("allowed", [0, 1, 2])
@pytest.mark.parametrize("before", [True, False])
def test_a_crash_leaves_a_whole_bundle(
    folder: Path, before: bool, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends before one of the three writes."""
    former, new = (pack([(key, Guess(5, 0.5))], 2) for key in (7, 8))
    if before:
        put_draft_index(folder, load_manifest(folder), former)
    writes = 0
    write = bundle_files.write_atomically

    def limited(*words: Any, **named: Any) -> Any:
        nonlocal writes
        writes += 1
        if writes > allowed:
            raise KeyboardInterrupt
        return write(*words, **named)

    monkeypatch.setattr("hamburger_edge.bundle.manifest.write_atomically", limited)
    monkeypatch.setattr(bundle_files, "write_atomically", limited)
    with pytest.raises(KeyboardInterrupt):
        put_draft_index(folder, load_manifest(folder), new)
    check_files(folder, load_manifest(folder), hashes=True)
    monkeypatch.undo()
    put_draft_index(folder, load_manifest(folder), new)
    check_files(folder, load_manifest(folder), hashes=True)
    with load(folder, threads=1) as model:
        assert isinstance(model.info.draft_index, DraftIndex)
        assert len(model.info.draft_index) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "nowhere: no such folder: make one with  hamburger-edge export"),
        (["smollm2-135m"], "smollm2-135m: no such folder"),
        (["{bundle}", "--least", "1"], "--least must be a whole number, 2"),
        (["{bundle}", "--max-tokens", "0"], "--max-tokens must be a whole number, 1"),
        (["{prompts}"], "no such folder"),
    ],
)
def test_bad_input_is_named_in_one_line(
    words: list[str], told: str, folder: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"bundle": str(folder), "prompts": str(prompts)}
    examples = folder.parent / "answers.jsonl"
    named = [word.format(**places) for word in words]
    assert cli.main(["index", *named, "--prompts", str(prompts), "--examples", str(examples)]) == 1
    error = capsys.readouterr().err.strip()
    assert told in error
    assert "\n" not in error
    assert not examples.exists()


def test_too_few_answers_leave_the_bundle_unchanged(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "manifest.json").read_bytes()
    indexed(folder, written(tmp_path / "one.jsonl", ["Hi"]), code=1)
    assert "no text is shared by 2 different answers" in capsys.readouterr().err
    assert (folder / "manifest.json").read_bytes() == before


def test_a_read_only_bundle_is_refused_before_any_answer(
    folder: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hamburger_edge.tuning.indexing.os.access", lambda *_: False)
    from hamburger_edge.tuning.indexing import Indexed

    with pytest.raises(BundleError, match="may not be written to"):
        Indexed.at(folder)
