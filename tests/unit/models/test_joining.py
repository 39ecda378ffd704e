"""Shards made in any order become one folder, in which no question that the base made up is asked twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from places import contents
from safetensors.numpy import save
from toy_distillation import SETTINGS
from toy_training import RECIPE

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.distillation.conversations import DistillSettings, Given, plan
from hamburger_edge.models.distillation.data_manifest import FORMAT, DataManifest, read_data_manifest
from hamburger_edge.models.distillation.joining import Joining, MadeConversation, MadeShard
from hamburger_edge.models.distillation.shard_files import read_shard
from hamburger_edge.models.distillation.storage import folder_at
from hamburger_edge.models.training.data.batches import DistilledData

LENGTH = 10  # tokens of each conversation, half of them its answer's


def shard(*questions: str, given_up: tuple[str, ...] = ()) -> MadeShard:
    """One conversation a question, whose tokens are its name's."""
    count = len(questions)
    arrays = {
        "starts": np.arange(count + 1) * LENGTH,
        "ids": np.repeat(np.array([ord(name) for name in questions], dtype=np.int32), LENGTH),
        "roles": np.zeros(count * LENGTH, dtype=np.uint8),
        "entropies": np.zeros(count * LENGTH, dtype=np.float16),
        "top_ids": np.zeros((count * LENGTH, 2), dtype=np.int32),
        "top_log_probabilities": np.zeros((count * LENGTH, 2), dtype=np.float16),
    }
    conversations = tuple(MadeConversation(LENGTH, LENGTH // 2, (name,)) for name in questions)
    asked = tuple(sorted({*questions, *given_up}))
    return MadeShard(save(arrays), conversations, asked, count + len(given_up), "repetition")


SHARDS = (shard("a", "b"), shard("c", "a", given_up=("d",)), shard("d", "e", "c"), shard("f", "g"))


def joining(folder: Path | str, tokens: int = 30) -> Joining:
    return Joining(folder_at(folder), DataManifest(FORMAT, {"base": "toy"}, ()), tokens)


def join(folder: Path | str, order: list[int], tokens: int = 30) -> Joining:
    joined = joining(folder, tokens)
    for number in order:
        joined.add(number, SHARDS[number])
    return joined


def test_what_an_earlier_shard_asked_is_left_out(tmp_path: Path) -> None:
    assert join(tmp_path, [0, 1, 2, 3]).finished
    shards = read_data_manifest(tmp_path).shards
    assert [each.repeated for each in shards] == [(), (1,), (0, 2), ()]
    assert [each.questions for each in shards] == [("a", "b"), ("c", "d"), ("e",), ("f", "g")]
    assert [(each.conversations, each.tokens, each.answer_tokens) for each in shards] == [
        (2, 20, 10), (1, 10, 5), (1, 10, 5), (2, 20, 10)
    ]  # fmt: skip
    read = [read_shard(tmp_path, each) for each in shards]
    assert ["".join(map(chr, arrays["ids"][::LENGTH])) for arrays in read] == ["ab", "c", "e", "fg"]
    assert [arrays["starts"].tolist() for arrays in read] == [[0, 10, 20], [0, 10], [0, 10], [0, 10, 20]]
    assert {len(arrays[name]) for arrays in read[1:3] for name in arrays if name != "starts"} == {10}


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 0, 3, 2], [2, 0, 3, 1]])
def test_the_order_in_which_shards_come_does_not_matter(order: list[int], tmp_path: Path) -> None:
    join(tmp_path / "in order", [0, 1, 2, 3])
    join(tmp_path / "otherwise", order)
    assert contents(tmp_path / "otherwise") == contents(tmp_path / "in order")


def test_a_shard_too_many_is_left_out(tmp_path: Path) -> None:
    join(tmp_path / "just enough", [0, 1, 2], tokens=20)
    joined = join(tmp_path / "too many", [3, 2, 0, 1], tokens=20)
    assert joined.finished
    assert contents(tmp_path / "too many") == contents(tmp_path / "just enough")


def test_no_more_is_begun_than_will_be_wanted(tmp_path: Path) -> None:
    """Nobody knows what a shard comes to before the first; then those under way count by the mean."""
    joined = joining(tmp_path)
    assert [joined.wanted() for _ in range(3)] == [0, 1, 2]
    joined.add(1, SHARDS[1])  # 10, not yet less what repeats shard 0, and two times as much under way
    assert joined.wanted() is None
    joined.add(0, SHARDS[0])  # 10 and 5, and half as much under way
    assert joined.wanted() == 3
    joined.add(3, SHARDS[3])
    joined.add(2, SHARDS[2])
    assert joined.finished
    assert joined.wanted() is None


def test_a_missing_shard_is_wanted_first_and_repeats_what_it_did(tmp_path: Path) -> None:
    join(tmp_path, [0, 1, 2, 3])
    before = contents(tmp_path)
    for number in (0, 2):
        (tmp_path / f"shard-{number:05d}.safetensors").unlink()
    with pytest.warns(match=r"shard-0000\d\.safetensors: missing or damaged, is made again"):
        joined = joining(tmp_path)
    assert [joined.wanted() for _ in range(3)] == [0, 2, None]
    joined.add(2, SHARDS[2])
    assert not joined.finished
    joined.add(0, SHARDS[0])
    assert joined.finished
    assert contents(tmp_path) == before


def test_shards_of_which_nothing_can_be_kept_end_the_run(tmp_path: Path) -> None:
    joined = joining(tmp_path)
    with pytest.raises(ConfigError, match=r"nothing of 100 conversations could be kept \(most often: repeti"):
        joined.add(0, shard(given_up=("x",) * 100))


def test_a_given_prompt_is_answered_once_at_its_likeliest() -> None:
    """By number alone: no shard needs to know what another one did. One of these prompts is there twice."""
    settings = DistillSettings(**{**vars(SETTINGS), "given": 0.5})
    prompts = [[5, 6], [7], [8, 9, 10], [7]]
    given = Given(prompts, settings)
    every = [plan(number, settings, given) for number in range(300)]
    begun = [c for c in every if c.given is not None]
    assert 100 < len(begun) < 200
    first = {c.given: c.number for c in reversed(begun)}
    assert len(first) == 3
    for c in begun:
        again = c.temperature == 0 and c.number != first[c.given]
        assert c.rejected == ("duplicate question" if again else None)
    assert all(c.rejected is None for c in every if c.given is None)


def test_a_folder_in_object_storage_is_like_one_on_a_disk(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="needs the extra [cluster]")
    for where in (str(tmp_path / "here"), "memory://bucket/data", f"file://{tmp_path}/there"):
        folder = folder_at(where)
        join(where, [0, 2, 1, 3])
        manifest = read_data_manifest(where)
        assert all(each.whole(where) for each in manifest.shards)
        names = [*(each.file for each in manifest.shards), "data.json"]
        assert {name: folder.read(name) for name in names} == contents(tmp_path / "here")
        recipe = replace(RECIPE, data=where, more_data=(where,))
        assert len(DistilledData.load(*recipe.data_folders)) == 2 * 6
        folder.write(names[1], b"half")
        assert not manifest.shards[1].whole(where)
        with pytest.raises(ConfigError, match=r"shard-00001\.safetensors: missing, or changed since"):
            read_shard(where, manifest.shards[1])
        with pytest.warns(match=r"shard-00001\.safetensors: missing or damaged"):
            again = joining(where)
        again.add(1, SHARDS[1])
        assert {name: folder.read(name) for name in names} == contents(tmp_path / "here") or "here" in where
    with pytest.raises(ConfigError, match="memory://nowhere: no training data there"):
        read_data_manifest("memory://nowhere")
