"""From conversations to groups and packed batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.toys.training_data_files import DataFiles, batches_of, first_batch, ladders
from safetensors.numpy import save

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.distillation import storage
from hamburger_edge.models.training.data.batches import Cuts, DistilledData
from hamburger_edge.models.training.data.segment_report import render, report
from hamburger_edge.models.training.data.segmentation import (
    EntropyRule,
    cut_at_random,
    cut_by_entropy,
    cut_by_lengths,
)
from hamburger_edge.support.files import sha256

RANDOM = Cuts(entropy=0.0, random=1.0)
EASY = Cuts(entropy=1.0, random=0.0, low=(0.5,), ratio=(0.5,))


def test_folders_are_joined_and_one_named_twice_counts_twice(tmp_path: Path) -> None:
    few, many = ladders(3), ladders(5, seed=1)
    folders = DataFiles.write(tmp_path / "few", few), DataFiles.write(tmp_path / "many", many)
    joined = DistilledData.load(folders[0], folders[1], folders[1])
    assert len(joined) == 13
    assert len(joined.shards) == 3
    np.testing.assert_array_equal(joined.ids, np.concatenate([few.ids, many.ids, many.ids]))
    for number, (data, place) in {3: (many, 0), 7: (many, 4), 12: (many, 4)}.items():
        start, stop = joined.starts[number : number + 2]
        first, last = data.starts[place : place + 2]
        np.testing.assert_array_equal(joined.top_ids[start:stop], data.top_ids[first:last])


def test_folders_of_two_bases_are_refused(tmp_path: Path) -> None:
    one = DataFiles.write(tmp_path / "one", ladders(3))
    other = DataFiles.write(tmp_path / "other", ladders(3), {"base": "another"})
    with pytest.raises(ConfigError, match=r"other: was distilled from another base than .*one"):
        DistilledData.load(one, other)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "not of format 1"),
        ('{"format": 99, "shards": [1]}', "not of format 1"),
        ('{"format": 1}', "missing key"),
        ('{"format": 1, "source": {}, "shards": []}', "holds no shards"),
    ],
)
def test_damaged_manifests_are_named(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(ConfigError, match=told) as error:
        DistilledData.load(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_run_reads_a_shard_for_its_hash_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = DataFiles.write(tmp_path, ladders(3)), list[Path]()
    monkeypatch.setattr(storage, "sha256", lambda path: (read.append(path), sha256(path))[1])
    DistilledData.load(folder, folder)
    DistilledData.load(folder)
    assert read == [folder / "shard.safetensors"]
    content = (folder / "shard.safetensors").read_bytes()
    (folder / "shard.safetensors").write_bytes(content)  # the same bytes, but a newer file
    DistilledData.load(folder)
    assert len(read) == 2


def test_every_slot_before_an_answer_token_is_asked_for_what_follows_whatever_the_cuts() -> None:
    """T T Q | A A A A A A | T: six predicting slots, up to four tokens each, none beyond the answer."""
    data = DataFiles.in_memory(
        roles=[[0, 0, 1, 2, 2, 2, 2, 2, 2, 0]],
        ids=[[10, 11, 12, 20, 21, 22, 23, 24, 2, 13]],
        entropies=[[0.0] * 10],
    )
    groups = first_batch(data).groups
    assert groups.sizes[0].tolist() == [1] * 10 + [0] * 20
    assert groups.groups[0, :10, 0].tolist() == [10, 11, 12, 20, 21, 22, 23, 24, 2, 13]
    assert groups.target_sizes[0].tolist() == [0, 0, 4, 4, 4, 3, 2, 1, 0, 0] + [0] * 20
    assert groups.targets[0, 2].tolist() == [20, 21, 22, 23]
    assert groups.targets[0, 5, :3].tolist() == [23, 24, 2]
    merged = first_batch(data, cuts=EASY).groups
    assert merged.sizes[0, :7].tolist() == [1, 1, 1, 4, 2, 1, 0]  # templates are never merged
    assert merged.groups[0, 3].tolist() == [20, 21, 22, 23]
    assert merged.target_sizes[0, :6].tolist() == [0, 0, 4, 2, 0, 0]
    assert merged.targets[0, 3, :2].tolist() == [24, 2]


def test_the_stop_head_is_asked_where_a_token_outside_the_draft_vocab_follows() -> None:
    """Such places were left out: at run time the head vouched for whatever was said there instead."""
    roles, ids = [0, 0, 2, 2, 2, 2, 2, 2, 0, 2, 2], [10, 11, 20, 21, 22, 23, 24, 2, 12, 20, 22]
    data = DataFiles.in_memory(roles=[roles], ids=[ids], entropies=[[0.0] * 11])
    draft_vocab = np.array([2, 20, 21, 23, 24])  # 22 is missing: it only opens groups
    batch = first_batch(data, draft_vocab=draft_vocab)
    sizes = batch.groups.target_sizes
    assert sizes[0, :11].tolist() == [0, 2, 1, 4, 3, 2, 1, 0, 1, 1, 0]
    # 20, 21 and 20 alone are followed by 22, which cannot join; behind the ends nothing is asked
    assert batch.judged_sizes.tolist() == [3, 2, 4, 3, 2, 1, 2, 1]
    assert batch.judged.sum(1).tolist() == [2, 1, 3, 2, 1, 0, 1, 0]
    merged = first_batch(data, draft_vocab=draft_vocab, cuts=EASY).groups
    assert merged.sizes[0, :8].tolist() == [1, 1, 2, 4, 1, 1, 1, 0]
    batch = first_batch(data)
    assert batch.judged_sizes.tolist() == batch.groups.target_sizes[batch.groups.target_sizes > 0].tolist()


@pytest.mark.parametrize("drop_last", [True, False])
def test_rows_hold_every_conversation_once_and_keep_its_text(drop_last: bool) -> None:
    """A short last batch was left out where text is judged, too, and not only in training."""
    data = ladders(40)
    batches = batches_of(data, rows=2, cuts=RANDOM, drop_last=drop_last)
    seen = []
    for rows in batches.plan(0):
        groups = batches.build(rows).groups
        members = torch.arange(4) < groups.sizes[..., None]
        for row, items in enumerate(rows):
            for document, slots in enumerate(items):
                here = groups.documents[row] == document
                text = groups.groups[row, here][members[row, here]].tolist()
                number = data.starts.tolist().index(slots.first[0])
                assert text == data.ids[data.starts[number] : data.starts[number + 1]].tolist()
                seen.append(number)
    assert len(set(seen)) == len(seen)
    assert len(batches.plan(0)[-1]) == (2 if drop_last else 1)
    assert (30 < len(seen) < 40) if drop_last else len(seen) == 40


def test_a_conversation_longer_than_a_row_loses_its_end() -> None:
    data = DataFiles.in_memory(roles=[[0] * 3 + [2] * 50])
    groups = first_batch(data, row_slots=20).groups
    assert (groups.sizes == 1).all()
    assert groups.target_sizes[0, 2:].tolist() == [4] * 18


def test_epochs_differ_and_are_reproducible() -> None:
    data = ladders(40)

    def ids(epoch: int, seed: int = 5) -> list[list[int]]:
        batches = batches_of(data, rows=2, cuts=RANDOM, seed=seed)
        return [batches.build(rows).groups.groups.flatten().tolist() for rows in batches.plan(epoch)]

    assert ids(0) == ids(0)
    assert ids(0) != ids(1)
    assert ids(0) != ids(0, seed=6)


def test_a_question_is_on_one_side_of_the_split() -> None:
    data = ladders(3000)
    split = data.split(0.1)
    assert sorted(split.train + split.calibration + split.held_out) == list(range(3000))

    def questions(numbers: list[int]) -> set[bytes]:
        return {data.ids[data.starts[n] : data.starts[n] + 5].tobytes() for n in numbers}

    train, calibration, held_out = map(questions, (split.train, split.calibration, split.held_out))
    assert not train & held_out
    assert not train & calibration
    assert not calibration & held_out
    everything = len(train | calibration | held_out)
    assert len(held_out) / everything == pytest.approx(0.1, abs=0.05)
    assert len(calibration) / everything == pytest.approx(0.05, abs=0.04)


def test_frequent_tokens_count_answers_and_first_choices() -> None:
    roles, held_out = [0, 0, 0, 2, 2, 2], [0, 2, 2, 2, 2, 2]
    data = DataFiles.in_memory(roles=[roles, held_out], ids=[[9, 9, 9, 50, 60, 50], [9, 80, 80, 80, 80, 80]])
    data.top_ids[:, 0] = [9, 9, 9, 70, 70, 70, 9, 80, 80, 80, 80, 80]
    assert data.frequent_tokens(3, [0]).tolist() == [50, 60, 70]
    assert data.frequent_tokens(5, [0]).tolist() == [0, 1, 50, 60, 70]  # filled up with low ids
    assert data.frequent_tokens(1, [0, 1]).tolist() == [80]


def test_damage_is_named(tmp_path: Path) -> None:
    folder = DataFiles.write(tmp_path / "data", ladders(5))
    shard = folder / "shard.safetensors"
    for content, told in (
        (shard.read_bytes()[:-40], "missing or damaged"),
        (save({"ids": np.zeros(3, np.int32)}), "has no entropies"),
    ):
        shard.write_bytes(content)
        with pytest.raises(ConfigError, match=r"shard\.safetensors: missing, or changed since it was made"):
            DistilledData.load(folder)
        manifest = json.loads((folder / "data.json").read_text())
        manifest["shards"][0]["sha256"] = sha256(shard)  # as if `distill` had made it so
        (folder / "data.json").write_text(json.dumps(manifest))
        with pytest.raises(ConfigError, match=rf"shard\.safetensors: {told}"):
            DistilledData.load(folder)
    with pytest.raises(ConfigError, match="no training data there: make it with  hamburger-edge distill"):
        DistilledData.load(tmp_path / "nothing")


# Cuts on hand-made entropies, and the report about them

PAPER = EntropyRule(0.05, 0.3)


@pytest.mark.parametrize(
    ("entropies", "sizes"),
    [
        ([], []),
        ([0.0], [1]),  # the first token has no group to join, however easy
        ([0.01] * 9, [4, 4, 1]),  # all low: only the length limit cuts
        ([0.05, 0.05], [1, 1]),  # a tie with `low` does not join
        ([1.0, 0.3], [1, 1]),  # a tie with ratio * highest does not join
        ([1.0, 0.25, 0.2, 0.29], [4]),  # against the group's highest, not the last
        ([1.0, 0.2, 0.4, 0.1], [2, 2]),  # the highest starts anew with each group
    ],
)
def test_the_papers_rule(entropies: list[float], sizes: list[int]) -> None:
    assert cut_by_entropy(np.asarray(entropies), 4, PAPER) == sizes


def test_a_joining_token_can_raise_the_highest() -> None:
    """0.9 joins below `low`, after which 1.1 < 2 * 0.9 may join too."""
    assert cut_by_entropy([0.1, 0.9, 1.1], 4, EntropyRule(1.0, 2.0)) == [3]
    assert cut_by_entropy([0.1, 0.9, 1.9], 4, EntropyRule(1.0, 2.0)) == [2, 1]


def test_tokens_that_may_not_join_open_groups() -> None:
    may_join = np.array([True, True, False, True, True, False, False])
    assert cut_by_entropy([0.0] * 7, 4, PAPER, may_join) == [2, 3, 1, 1]
    assert cut_by_lengths(np.full(7, 4), may_join) == [2, 3, 1, 1]
    lengths = np.array([1, 3, 4, 1, 2, 4, 1])
    assert cut_by_lengths(lengths, np.ones(7, dtype=bool)) == [1, 3, 2, 1]


def test_random_cuts_have_every_length_equally_often() -> None:
    sizes = cut_at_random(20_000, 4, np.random.default_rng(0))
    assert sum(sizes) == 20_000
    shares = np.bincount(sizes[:-1], minlength=5)[1:] / len(sizes)
    assert shares == pytest.approx([0.25] * 4, abs=0.02)


def test_report_covers_answers_only_and_shows_groups() -> None:
    # Q Q A A A | Q A A Q A: three answers; entropies of the questions must not count
    data = DataFiles.in_memory(
        roles=[[1, 1, 2, 2, 2], [0, 2, 2, 1, 2]],
        entropies=[[9, 9, 1.0, 0.01, 2.0], [9, 1.0, 0.01, 9, 1.0]],
    )
    found = report(data, [PAPER], decode=lambda ids: " ".join(map(str, ids)) + "\n")
    assert found.answers == 3
    assert found.mean_entropy == pytest.approx(5.02 / 6, abs=1e-3)
    assert found.cuts[0].histogram == {1: 2, 2: 2, 3: 0, 4: 0}
    assert (found.cuts[0].tokens, found.cuts[0].groups) == (6, 4)
    assert [len(group.split()) for group in found.samples[0]] == [2, 1]
    text = render(found)
    assert "1.50" in text
    assert text.count("\x1b[30;48;5;") == text.count("\x1b[0m") == 2
    assert "\x1b" not in str(found)
    assert found.to_json()["cuts"][0]["tokens_per_group"] == 1.5
