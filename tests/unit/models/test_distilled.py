"""Shards written in any order become one folder without repeated questions; scores of given answers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.places import contents
from helpers.toys import toy_distillation
from helpers.toys.toy_distillation import SETTINGS
from helpers.toys.toy_models import toy_model
from helpers.toys.toy_training import RECIPE
from safetensors.numpy import save

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.distillation.conversations import ANSWER, TEMPLATE, DistillSettings, Given, plan
from hamburger_edge.models.distillation.data_manifest import FORMAT, DataManifest, read_data_manifest
from hamburger_edge.models.distillation.joining import Joining, MadeConversation, MadeShard
from hamburger_edge.models.distillation.logits import likeliest
from hamburger_edge.models.distillation.shard_files import read_shard
from hamburger_edge.models.distillation.storage import folder_at
from hamburger_edge.models.distillation.written import WrittenConversation, write_conversations
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.scoring import score

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


def test_questions_of_an_earlier_shard_are_excluded(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("order", "tokens", "enough"),
    [([3, 2, 1, 0], 30, [0, 1, 2, 3]), ([2, 0, 3, 1], 30, [0, 1, 2, 3]), ([3, 2, 0, 1], 20, [0, 1, 2])],
)
def test_result_is_independent_of_shard_order_and_extra_shards(
    order: list[int], tokens: int, enough: list[int], tmp_path: Path
) -> None:
    join(tmp_path / "in order", enough, tokens)
    assert join(tmp_path / "otherwise", order, tokens).finished
    assert contents(tmp_path / "otherwise") == contents(tmp_path / "in order")


def test_number_of_started_shards_follows_their_mean_size(tmp_path: Path) -> None:
    """The size of a shard is unknown before the first one; then shards in progress count with the mean."""
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


def test_empty_shards_end_the_run(tmp_path: Path) -> None:
    joined = joining(tmp_path)
    with pytest.raises(ConfigError, match=r"nothing of 100 conversations could be kept \(most often: repeti"):
        joined.add(0, shard(given_up=("x",) * 100))


def test_given_prompt_is_answered_once_greedily() -> None:
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


def test_object_storage_equals_a_local_folder(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="needs the extra [cluster]")
    join(tmp_path / "here", [0, 1, 2, 3])
    for where in ("memory://bucket/data", f"file://{tmp_path}/there"):
        folder = join(where, [0, 2, 1, 3]).folder
        files = contents(tmp_path / "here")
        assert {name: folder.read(name) for name in files} == files
        data = DistilledData.load(*replace(RECIPE, data=where, more_data=(where,)).data_folders)
        assert len(data) == 2 * 6
        [_, second, *_] = read_data_manifest(where).shards
        folder.write(second.file, b"half")
        with pytest.raises(ConfigError, match=r"shard-00001\.safetensors: missing, or changed since"):
            read_shard(where, second)
        with pytest.warns(match=r"shard-00001\.safetensors: missing or damaged"):
            joining(where).add(1, SHARDS[1])
        assert {name: folder.read(name) for name in files} == files
    with pytest.raises(ConfigError, match="memory://nowhere: no training data there"):
        read_data_manifest("memory://nowhere")


@pytest.mark.parametrize("rows", [1, 5])
def test_given_answers_get_the_scores_of_their_base(tmp_path: Path, rows: int) -> None:
    """Read anew in one pass, a base's answers have the entropies and choices that it had as it wrote them."""
    toy_distillation.make(tmp_path / "distilled")
    distilled = DistilledData.load(tmp_path / "distilled")
    conversations = []
    for start, stop in zip(distilled.starts[:-1], distilled.starts[1:], strict=True):
        one = WrittenConversation()
        for token, role in zip(distilled.ids[start:stop], distilled.roles[start:stop], strict=True):
            one.add([int(token)], ANSWER if role == ANSWER else TEMPLATE)
        conversations.append(one)
    write_conversations(tmp_path / "written", "given", conversations, {"base": "toy"})
    written = DistilledData.load(tmp_path / "written")
    assert np.array_equal(written.ids, distilled.ids)
    answers = distilled.roles == ANSWER
    assert np.array_equal(written.roles == ANSWER, answers)
    assert set(written.roles.tolist()) == {ANSWER, TEMPLATE}
    model = toy_model()
    model.base.load_state_dict(toy_distillation.toy_base().state_dict())
    scored = score(model, written, rows=rows, row_slots=120, top_k=4, autocast=nullcontext())
    assert scored["entropies"][answers] == pytest.approx(distilled.entropies[answers], abs=4e-3)
    assert not scored["entropies"][~answers].any()
    same = scored["top_ids"][answers] == distilled.top_ids[answers]
    assert same.mean() > 0.99  # except tokens of equal likelihood
    values = scored["top_log_probabilities"][answers]
    assert values == pytest.approx(distilled.top_log_probabilities[answers], abs=1e-2)


@pytest.mark.parametrize("vocab", [100, 2560, 10_003])
def test_top_tokens_of_a_large_vocabulary_are_exact(vocab: int) -> None:
    """Also those behind the last whole chunk, and many in one chunk."""
    logits = torch.randn(5, vocab, generator=torch.Generator().manual_seed(0))
    logits[1, :16] += 9
    logits[2, -3:] += 9
    values, ids = likeliest(logits, 4)
    assert torch.equal(values, logits.topk(4).values)
    assert torch.equal(ids, logits.topk(4).indices)


def test_missing_shard_is_made_first_and_identically(tmp_path: Path) -> None:
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
