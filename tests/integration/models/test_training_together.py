"""Processes that train together, and a GPU that is simulated: the same training as one process on a CPU."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.places import PATIENCE, PROGRAMS, environment, names
from helpers.toys.toy_training import SHARED, toy_trainer

pytestmark = pytest.mark.slow


def together(count: int, *trainings: tuple[Path, str, str]) -> list[list[str]]:
    """Return the final lines of all processes, per training (out, minutes, how)."""
    words = [str(word) for training in trainings for word in training]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    common |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "trained_together.py"), *words],
            env=environment(**common, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in started]
    assert {process.returncode for process in started} == {0}, "\n".join(text[1][-2000:] for text in said)
    assert len({text[0] for text in said}) == 1
    return [line.split() for line in said[0][0].splitlines()]


def curve(out: Path) -> list[dict[str, float]]:
    """Figures of held-out text, and each exactly once."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    kinds = {(line.pop("kind"), line.pop("stage"), line["step"]): line for line in lines}
    assert len([kind for kind in kinds if kind[0] == "held_out_merged"]) == kinds[list(kinds)[-1]]["step"] > 3
    return [line for kind, line in kinds.items() if kind[0] != "train"]  # those are of whole runs alone


def same_training(one: Path, other: Path) -> None:
    for ours, theirs in zip(curve(one), curve(other), strict=True):
        assert ours == pytest.approx(theirs, abs=2e-3, rel=2e-3)
    a, b = (torch.load(out / "last.pt", weights_only=True)["model"] for out in (one, other))
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=2e-4, rtol=2e-3, msg=name)


def test_several_processes_train_like_one_and_stop_together(tmp_path: Path) -> None:
    """Few processes run all trainings, because PyTorch's start takes most of their time.

    plain    one process starts a second after the other, and the time is over immediately.

    shared   begun by two processes, continued by four.

    divided  begun by two that have half of the data each, continued by one that has all of it.

    whole    begun by one, continued by two.
    """
    alone, plain, shared, divided, whole = (
        tmp_path / name for name in ("alone", "plain", "shared", "divided", "whole")
    )
    assert toy_trainer(alone, SHARED, 300).run()
    assert not toy_trainer(whole, SHARED, 300).run(minutes=0)
    stopped = together(2, (plain, "0", "plain"), (shared, "0", "shared"), (divided, "0", "divided"))
    assert [words[:2] for words in stopped] == [["False", "1"]] * 3
    ended = together(2, (plain, "100", "plain"), (whole, "100", "divided"))
    ended += together(4, (shared, "100", "shared"))
    assert toy_trainer(divided, SHARED, 300).run()
    assert [words[0] for words in ended] == ["True"] * 3
    assert ended[0][2] != stopped[0][2]  # other weights
    for out in (shared, divided, whole):
        same_training(out, alone)
    for out in (plain, shared):
        assert names(out) == ["last.pt", "metrics.jsonl"]


def test_distillation_and_training_on_a_gpu_equal_the_cpu(tmp_path: Path) -> None:
    """A separate process has the simulated GPU from its start to its end."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "simulated_gpu_run.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment(OMP_NUM_THREADS="1"),
    )
    assert done.stdout.endswith("the same\n"), done.stderr[-3000:]
