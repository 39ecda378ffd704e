"""The base makes its own data: the same bytes from the same seed, in one go or not."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.base_logits import logits_whole
from helpers.places import contents
from helpers.toys.toy_checkpoints import write_hf
from helpers.toys.toy_distillation import PROMPTS, SETTINGS, TURNS, make, toy_base
from helpers.toys.toy_models import toy_model
from helpers.toys.toy_tokenizers import byte_level

from hamburger_edge.cli import main as cli
from hamburger_edge.errors import ConfigError, HamburgerError, HamburgerWarning, InputError
from hamburger_edge.models.architecture.llama import rotary_tables
from hamburger_edge.models.distillation.cluster import Cluster
from hamburger_edge.models.distillation.conversations import (
    ANSWER,
    QUESTION,
    TEMPLATE,
    Conversation,
    DistillSettings,
    Given,
    ShardRun,
    plan,
)
from hamburger_edge.models.distillation.distill import distill, kept_type, shard_size
from hamburger_edge.models.distillation.generation import BatchGenerator
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.support.repetition import four_gram_repetition


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("distilled")
    make(folder)
    return folder


def test_equal_seeds_give_equal_bytes(made: Path, tmp_path: Path) -> None:
    """Also where a run stopped, and goes on for more tokens."""
    make(tmp_path / "again", tokens=100)
    before = contents(tmp_path / "again")
    make(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(made)
    assert len(before) < len(contents(made))
    make(tmp_path / "other", seed=5)
    assert contents(tmp_path / "other") != contents(made)


def test_damaged_shard_alone_is_made_again(made: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(made, tmp_path / "data")
    first, *others = sorted(folder.glob("shard-*"))
    assert others
    before = [path.stat().st_mtime_ns for path in others]
    first.write_bytes(b"half")
    with pytest.warns(HamburgerWarning, match=r"shard-00000\.safetensors: missing or damaged, is made again"):
        make(folder)
    assert contents(folder) == contents(made)
    assert [path.stat().st_mtime_ns for path in others] == before


def test_progress_counts_complete_shards(tmp_path: Path) -> None:
    """A few tokens take a whole shard: said from the beginning, not found out at 100%."""
    told: list[tuple[int, int]] = []
    settings = dataclasses.replace(SETTINGS, tokens=10)
    manifest = distill(
        toy_base(), tmp_path, settings, TURNS, PROMPTS, {"base": "toy"},
        lambda done, total, seconds: told.append((done, total)), torch.float32,
    )  # fmt: skip
    [shard] = manifest.shards
    made = shard.answer_tokens
    assert all(done <= total for done, total in told)
    assert told == sorted(told, key=lambda each: each[0])
    assert 0.5 * made < told[len(told) // 2][1] < 2 * made
    assert 0.8 * made < told[-1][0] <= told[-1][1] < 1.25 * made


def test_shard_is_at_most_as_large_as_requested(made: Path, tmp_path: Path) -> None:
    assert shard_size(tmp_path, 10**6, rows=16) == 128
    assert shard_size(tmp_path, 450, rows=128) == 5
    with pytest.warns(HamburgerWarning, match=r"shards of \d+ conversations"):
        assert shard_size(made, 10**6, rows=128) == SETTINGS.shard_conversations


def test_few_tokens_with_many_rows_are_made(tmp_path: Path) -> None:
    """A shard that never fills an eighth of the rows is made to its end all the same."""
    manifest = make(tmp_path, tokens=60, rows=512, shard_conversations=6)
    assert manifest.answer_tokens >= 60
    assert sum(shard.conversations for shard in manifest.shards) > 3


def test_base_without_usable_answers_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing of 64 conversations .*most often: question too short"):
        make(tmp_path, shard_conversations=16, given=0.0, min_question=10**6)


def test_template_may_begin_with_one_token(tmp_path: Path) -> None:
    turns = dataclasses.replace(TURNS, prefix=TURNS.prefix[:1])
    source = {"base": "toy"}
    manifest = distill(toy_base(), tmp_path, SETTINGS, turns, PROMPTS, source, dtype=torch.float32)
    assert manifest.answer_tokens > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resumed_run_keeps_the_number_type(dtype: torch.dtype, tmp_path: Path) -> None:
    """Whichever the machine would choose for new data."""
    assert kept_type(str(tmp_path)) is None
    distill(toy_base(), tmp_path, SETTINGS, TURNS, PROMPTS, {"base": "toy"}, dtype=dtype)
    assert kept_type(str(tmp_path)) == dtype


def test_folder_of_other_settings_is_refused(made: Path) -> None:
    before = contents(made)
    with pytest.raises(ConfigError, match="made with another settings"):
        make(made, seed=5)
    assert contents(made) == before


def answer(tokens: list[int], **changes: float) -> Conversation:
    """A conversation whose answer is these tokens, as far as they are listened to."""
    settings = DistillSettings(tokens=1, top_k=1, **changes)  # type: ignore[arg-type]
    run = ShardRun(BatchGenerator(toy_base(), 640, torch.float32), settings, TURNS)
    c = plan(0, settings, Given([], settings))
    nothing = np.zeros(1), np.zeros(1)
    c.add(1, TEMPLATE, 0.0, nothing)
    c.role, c.text_start = ANSWER, 1
    for token in tokens:
        if not c.done:
            c.add(token, ANSWER, 1.0, nothing)
            run._advance(c, set())
    return c


def test_looping_answer_is_truncated_before_its_loop() -> None:
    looping = [*range(100, 170), *[3, 4, 5] * 60]
    c = answer(looping)
    assert c.done
    assert c.rejected is None
    assert 64 <= c.answer_tokens < 96  # the clean 70, give or take a step
    assert c.ids[1:] == looping[: c.answer_tokens]
    assert four_gram_repetition(c.ids[1:]) < 0.1
    assert len(c.ids) == len(c.roles) == len(c.entropy) == len(c.top)
    assert answer(looping, kept_repetition=0.0).rejected == "repetition"
    assert answer([3, 4, 5] * 100).rejected == "repetition"  # nothing comes before it


def test_conversations_follow_the_template(made: Path) -> None:
    data = DistilledData.load(made)
    assert len(data) > 5
    turns = 0
    for number in range(len(data)):
        start, stop = data.starts[number : number + 2]
        ids, roles = data.ids[start:stop].tolist(), data.roles[start:stop]
        assert ids[:3] == [1, 90, 91]
        assert set(roles[:3]) == {TEMPLATE}
        answers = np.flatnonzero((roles == ANSWER) & (np.roll(roles, 1) != ANSWER))
        for first in answers:
            assert ids[first - 4 : first] == [2, 3, 1, 92]  # the question's end, then the template
        turns = max(turns, len(answers))
        given = ids[3:6] in PROMPTS and roles[3] == TEMPLATE
        assert given or roles[3] == QUESTION
    assert turns == 2, "no conversation of two turns"


def test_stored_predictions_are_those_of_the_base(made: Path) -> None:
    """Entropy and top k of every token, recomputed over whole sequences without a cache; also of rows that
    joined late."""
    data, base = DistilledData.load(made), toy_base()
    for number in range(len(data)):
        start, stop = data.starts[number : number + 2]
        ids = torch.from_numpy(data.ids[start:stop].astype(np.int64))
        prefix = len(TURNS.prefix)  # is not predicted
        after = slice(start + prefix, stop)
        logits = logits_whole(base, rotary_tables(base.config, len(ids)), ids[None])[0]
        scores = logits[prefix - 1 : -1].log_softmax(-1)  # row i predicts token i + 1
        entropy = -(scores.exp() * scores).sum(-1)
        torch.testing.assert_close(
            torch.from_numpy(data.entropies[after]).float(), entropy, atol=5e-3, rtol=1e-2
        )
        stored = torch.from_numpy(data.top_log_probabilities[after]).float()
        torch.testing.assert_close(stored, scores.topk(4).values, atol=5e-3, rtol=1e-2)
        picked = scores.gather(1, torch.from_numpy(data.top_ids[after].astype(np.int64)))
        torch.testing.assert_close(stored, picked, atol=5e-3, rtol=1e-2)


# -- workers of a Ray cluster, also where one of them is killed ----------------------------------------


@pytest.mark.slow
def test_error_of_every_worker_ends_the_run(cluster: Cluster) -> None:
    def dies() -> Callable[[int], None]:
        return lambda job: os.kill(os.getpid(), signal.SIGKILL)

    def refuses() -> Callable[[int], None]:
        raise ConfigError("the base: has no layers")

    jobs = iter([7])
    with pytest.raises(HamburgerError, match="3 workers were lost at 7, the last with: "):
        next(cluster.results(dies, lambda: next(jobs, None)))
    with pytest.raises(ConfigError, match=r"^the base: has no layers$"):
        next(cluster.results(refuses, lambda: 7))


@pytest.mark.slow
def test_shard_of_a_lost_worker_is_made_by_another(cluster: Cluster, tmp_path: Path) -> None:
    """It was forgotten where all others had nothing left to do and the new worker was still to begin."""
    begun, killed = tmp_path / "begun", tmp_path / "killed"
    begun.mkdir()

    def worker() -> Callable[[int], int]:
        (begun / str(os.getpid())).touch()

        def work(job: int) -> int:
            if not killed.exists():
                while len(list(begun.iterdir())) < 2:
                    time.sleep(0.05)
                time.sleep(0.5)  # until the other is known to be idle
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return 2 * job

        return work

    jobs = iter([7])
    assert list(cluster.results(worker, lambda: next(jobs, None))) == [(7, 14)]
    assert killed.exists()


@pytest.mark.slow
def test_cluster_makes_the_bytes_of_one_process(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = toy_model(vocab_size=330)
    model.base = toy_base(vocab_size=330)
    base = write_hf(tmp_path / "base", model)
    byte_level(base).replace(base / "tokenizer.json")
    (base / "chat_markup.json").write_text('{"kind": "chatml"}')
    words = ["distill", str(base), "--tokens", "300", "--rows", "4", "--threads", "1", "-o"]
    assert cli.main([*words, str(tmp_path / "alone")]) == 0
    assert cli.main([*words, str(tmp_path / "together"), "--ray", "local", "--workers", "2"]) == 0
    assert contents(tmp_path / "together") == contents(tmp_path / "alone")
    assert len(contents(tmp_path / "alone")) > 2
    capsys.readouterr()
    assert cli.main([*words, str(tmp_path / "new"), "--ray", "local", "--gpus-per-worker", "2"]) == 1
    assert "2 GPUs per worker: the cluster at local has 0" in capsys.readouterr().err
    assert cli.main([*words, str(tmp_path / "new"), "--workers", "2"]) == 1
    assert "--workers is for --ray: add that, or leave it out" in capsys.readouterr().err
    with pytest.raises(InputError, match="workers must be a whole number"):
        Cluster("local", 0)
