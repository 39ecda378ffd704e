"""The base makes its own data: the same bytes from the same seed, killed or not."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from places import contents, environment
from toy_distillation import PROMPTS, SETTINGS, TURNS, make, toy_base

from hamburger_edge.errors import ConfigError, HamburgerWarning
from hamburger_edge.models.architecture.llama import WholeSequence, rotary_tables
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
from hamburger_edge.models.distillation.distill import distill, shard_size
from hamburger_edge.models.distillation.generation import BatchGenerator
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.support.repetition import four_gram_repetition


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("distilled")
    make(folder)
    return folder


def test_the_same_seed_makes_the_same_bytes(made: Path, tmp_path: Path) -> None:
    make(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(made)
    make(tmp_path / "other", seed=5)
    assert contents(tmp_path / "other") != contents(made)


def test_killed_in_between_it_ends_with_the_same_bytes(made: Path, tmp_path: Path) -> None:
    """A process of its own, killed as soon as its first shard is there; this one goes on."""
    folder = tmp_path / "killed"
    program = (
        "import torch; torch.set_num_threads(1)\n"
        "from pathlib import Path\n"
        "from toy_distillation import make\n"
        f"make(Path({str(folder)!r}), tokens=10**9)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env=environment())
    try:
        while not (folder / "data.json").exists():
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    shards = len(DistilledData.load(folder).shards)
    make(folder)
    now = contents(folder)
    strays = [name for name in now if name.startswith(".")]  # a shard that was being written
    if shards < len(contents(made)) - 1:
        assert {n: c for n, c in now.items() if n not in strays} == contents(made)
    else:  # too quick for this test: all that both have must agree
        assert {n: now[n] for n in contents(made) if n != "data.json"} == {
            n: c for n, c in contents(made).items() if n != "data.json"
        }


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"half")])
def test_a_shard_that_is_gone_is_made_again(
    damage: Callable[[Path], object], made: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(made, tmp_path / "data")
    others = [path for path in folder.glob("shard-*") if path.name != "shard-00000.safetensors"]
    assert others
    before = [path.stat().st_mtime_ns for path in others]
    damage(folder / "shard-00000.safetensors")
    with pytest.warns(HamburgerWarning, match=r"shard-00000\.safetensors: missing or damaged, is made again"):
        make(folder)
    assert contents(folder) == contents(made)
    assert [path.stat().st_mtime_ns for path in others] == before


def test_progress_counts_what_whole_shards_come_to(tmp_path: Path) -> None:
    """A few tokens take a whole shard: said from the beginning, not found out at 100%."""
    told: list[tuple[int, int]] = []
    settings = DistillSettings(**{**vars(SETTINGS), "tokens": 10})
    manifest = distill(
        toy_base(), tmp_path, settings, TURNS, PROMPTS, {"base": "toy"},
        lambda done, total, seconds: told.append((done, total)), torch.float32,
    )  # fmt: skip
    [shard] = manifest.shards
    assert all(done <= total for done, total in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    made = shard.answer_tokens
    assert 0.5 * made < told[len(told) // 2][1] < 2 * made
    assert 0.8 * made < told[-1][0] <= told[-1][1] < 1.25 * made


def test_more_tokens_later_go_on_where_it_stopped(made: Path, tmp_path: Path) -> None:
    make(tmp_path / "d", tokens=100)
    before = len(list((tmp_path / "d").glob("*.safetensors")))
    make(tmp_path / "d")
    assert contents(tmp_path / "d") == contents(made)
    assert before < len(list(made.glob("*.safetensors")))


def test_a_shard_is_no_larger_than_what_was_asked_for(made: Path, tmp_path: Path) -> None:
    assert shard_size(tmp_path, 10**6, rows=128) == 1024
    assert shard_size(tmp_path, 10**6, rows=16) == 128
    assert shard_size(tmp_path, 450, rows=128) == 5
    assert shard_size(tmp_path, 1, rows=128) == 1
    with pytest.warns(HamburgerWarning, match=r"shards of \d+ conversations"):
        assert shard_size(made, 10**6, rows=128) == SETTINGS.shard_conversations


def test_few_tokens_beside_many_rows(tmp_path: Path) -> None:
    """A shard that never fills an eighth of the rows is made to its end all the same."""
    manifest = make(tmp_path / "d", tokens=60, rows=512, shard_conversations=6)
    assert manifest.answer_tokens >= 60
    assert sum(shard.conversations for shard in manifest.shards) > 3


def test_a_base_that_gives_nothing_is_not_asked_for_ever(tmp_path: Path) -> None:
    settings = DistillSettings(
        **{**vars(SETTINGS), "shard_conversations": 16, "given": 0.0, "min_question": 10**6}
    )
    with pytest.raises(ConfigError, match=r"nothing of 64 conversations .*most often: question too short"):
        distill(toy_base(), tmp_path / "d", settings, TURNS, [], {"base": "toy"}, dtype=torch.float32)


def test_a_template_may_begin_with_one_token(tmp_path: Path) -> None:
    turns = dataclasses.replace(TURNS, prefix=TURNS.prefix[:1])
    manifest = distill(
        toy_base(), tmp_path / "d", SETTINGS, turns, PROMPTS, {"base": "toy"}, dtype=torch.float32
    )
    assert manifest.answer_tokens > 0


def test_other_settings_do_not_mix_into_a_folder(made: Path) -> None:
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


def test_an_answer_that_loops_is_cut_back_to_before_its_loop() -> None:
    looping = [*range(100, 170), *[3, 4, 5] * 60]
    c = answer(looping)
    assert c.done
    assert c.rejected is None
    assert 64 <= c.answer_tokens < 96  # the clean 70, give or take a step
    assert c.ids[1:] == looping[: c.answer_tokens]
    assert four_gram_repetition(c.ids[1:]) < 0.1
    assert len(c.ids) == len(c.roles) == len(c.entropy) == len(c.top)
    assert answer(looping, kept_repetition=0.0).rejected == "repetition"


def test_an_answer_that_loops_from_its_beginning_is_thrown_away() -> None:
    assert answer([3, 4, 5] * 100).rejected == "repetition"


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


@torch.no_grad()
def test_stored_predictions_are_the_bases_own(made: Path) -> None:
    """Entropy and top k of every token, recomputed over whole sequences without a cache."""
    data, base = DistilledData.load(made), toy_base()
    for number in range(3):
        start, stop = data.starts[number : number + 2]
        ids = torch.from_numpy(data.ids[start:stop].astype(np.int64))
        rotary = rotary_tables(base.config, len(ids))
        features = base(base.embed_tokens(ids)[None], WholeSequence(base.config, rotary[None, None]))
        scores = base.logits(features[0, :-1, -1]).log_softmax(-1)  # row i predicts token i + 1
        after = slice(start + len(TURNS.prefix), stop)  # the prefix is not predicted
        scores = scores[len(TURNS.prefix) - 1 :]
        entropy = -(scores.exp() * scores).sum(-1)
        torch.testing.assert_close(
            torch.from_numpy(data.entropies[after]).float(), entropy, atol=5e-3, rtol=1e-2
        )
        stored = torch.from_numpy(data.top_log_probabilities[after]).float()
        torch.testing.assert_close(stored, scores.topk(4).values, atol=5e-3, rtol=1e-2)
        picked = scores.gather(1, torch.from_numpy(data.top_ids[after].astype(np.int64)))
        torch.testing.assert_close(stored, picked, atol=5e-3, rtol=1e-2)


@torch.no_grad()
def test_rows_of_a_batch_do_not_touch_each_other() -> None:
    """Rows that join late and at other lengths say what a row alone says."""
    base = toy_base()
    together, alone = BatchGenerator(base, 40, torch.float32), BatchGenerator(base, 40, torch.float32)
    for generator, rows in ((together, 3), (alone, 1)):
        generator.set_prefix([1, 90])
        generator.reset(rows)
    for row in range(3):
        together.open_row(row)
    alone.open_row(0)
    for token in (5, 6, 7):
        together.step(torch.tensor([token, 8, 9]))
    together.open_row(1)  # begins anew beside the others
    for token in (40, 41, 42):
        expected = alone.step(torch.tensor([token]))[0]
        got = together.step(torch.tensor([11, token, 12]))[1]
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
