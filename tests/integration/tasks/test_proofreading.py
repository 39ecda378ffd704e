"""The whole way from a base to examples, with the base that writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_tasks import write_base

from hamburger_edge.errors import ConfigError
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.tasks.proofreading.__main__ import main
from hamburger_edge.tasks.proofreading.examples import (
    HOPELESS,
    ProofreadingSettings,
    make_examples,
)
from hamburger_edge.tasks.proofreading.scoring import score
from hamburger_edge.tasks.proofreading.sentences import LINES, Line, read_shard, save_lines, shard_file

WEIGHTS = cache_folder() / "bases" / "smollm2-135m" / "model.gguf"
SETTINGS = ProofreadingSettings(sentences=8, dev_seen=4, dev_unseen=2, rows=12, seed=5)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not WEIGHTS.exists():
        pytest.skip("the weights of smollm2-135m are not on this machine: hamburger-edge fetch smollm2-135m")
    out = tmp_path_factory.mktemp("proofreading")
    assert make_examples(SETTINGS, out) == out / "train.jsonl"
    return out


def test_a_base_writes_eight_clean_texts_and_mistakes_are_put_into_them(made: Path) -> None:
    texts = lines(made / "sentences.jsonl")
    assert len({text["text"] for text in texts}) == 8
    train, dev = lines(made / "train.jsonl"), lines(made / "dev.jsonl")
    notes = lines(made / "dev_mistakes.jsonl")
    own = {text["text"] for text in texts if not text["held_out"]}
    assert {line["answer"] for line in train} == own
    assert own.isdisjoint(line["answer"] for line in dev)
    assert len(dev) == len(notes) == json.loads((made / "facts.json").read_text())["dev examples"]
    noted = [{**line, **note} for line, note in zip(dev, notes, strict=True)]
    scores = score(noted, [line["answer"] for line in dev])
    assert scores.exact == len(dev)
    assert scores.put_right == scores.mistakes
    assert scores.changed == 0


def test_a_killed_run_ends_with_the_same_bytes(made: Path) -> None:
    whole = {path.name: path.read_bytes() for path in made.glob("*.jsonl")}
    shards = sorted((made / "shards").iterdir())
    there = [path.read_bytes() for path in shards]
    shards[-1].unlink()
    make_examples(SETTINGS, made)
    assert [path.read_bytes() for path in shards] == there
    assert {path.name: path.read_bytes() for path in made.glob("*.jsonl")} == whole


def test_other_settings_need_another_folder(made: Path) -> None:
    with pytest.raises(ConfigError, match="made with another temperature"):
        make_examples(replace(SETTINGS, temperature=0.9), made)


def test_lines_have_their_topic_and_what_the_base_thought_of_them(made: Path) -> None:
    written = read_shard(shard_file(made / "shards", 0))
    assert written
    assert all(line.lowest <= line.mean <= 0 and line.shard == 0 for line in written)
    assert max(len([other for other in written if other.topic == line.topic]) for line in written) <= LINES


def test_a_base_that_writes_nothing_clean_is_told_of(tmp_path: Path) -> None:
    base, out = write_base(tmp_path / "base"), tmp_path / "out"
    (out / "shards").mkdir(parents=True)
    for shard in range(HOPELESS):
        save_lines(shard_file(out / "shards", shard), [Line(shard, 0, "no no no", -1.0, -2.0)])
    with pytest.raises(ConfigError, match="wrote nothing clean in 46 shards: take another base"):
        make_examples(replace(SETTINGS, base=str(base)), out)


def test_a_base_without_room_for_the_examples_is_told_of(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    with pytest.raises(ConfigError, match="positions are needed, and there are"):
        make_examples(replace(SETTINGS, base=str(base)), tmp_path / "out")


def test_help_says_what_the_options_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    assert "clean texts (12000)" in capsys.readouterr().out
