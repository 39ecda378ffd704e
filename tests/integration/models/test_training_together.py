"""Processes that train together: one program to the outside, and the same training however many they are."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from places import PATIENCE, PROGRAMS, environment
from toy_training import LORA, SHARED, SHORT, toy_trainer

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.training.run_state import load_state

SCRIPT = PROGRAMS / "trained_together.py"


def together(count: int, *trainings: tuple[Path, str, str]) -> list[list[str]]:
    """What all of them say in the end of each training: (out, minutes, how)."""
    words = [str(word) for training in trainings for word in training]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    common |= {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *words],
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


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one process left its training."""
    out = tmp_path_factory.mktemp("alone")
    assert toy_trainer(out, SHARED, 300).run()
    return out


class Runs(NamedTuple):
    folder: Path
    stopped: list[list[str]]  # plain, shared, divided: begun by two processes
    ended: list[list[str]]  # plain, whole, shared: gone on with by two, two and four


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All that several processes train, by as few as will do: most of their time is PyTorch's start."""
    folder = tmp_path_factory.mktemp("together")
    plain, shared, divided, whole = (folder / name for name in ("plain", "shared", "divided", "whole"))
    assert not toy_trainer(whole, SHARED, 300).run(minutes=0)
    stopped = together(2, (plain, "0", "plain"), (shared, "0", "shared"), (divided, "0", "divided"))
    ended = together(2, (plain, "100", "plain"), (whole, "100", "divided"))
    return Runs(folder, stopped, [*ended, *together(4, (shared, "100", "shared"))])


def test_processes_train_as_one_and_stop_together(runs: Runs) -> None:
    """One starts a second after the other, and time is up at once; run again, both go on to the end."""
    done, steps, first = runs.stopped[0]
    assert (done, steps) == ("False", "1")
    done, _, last = runs.ended[0]
    assert done == "True"
    assert last != first
    assert {path.name for path in (runs.folder / "plain").iterdir()} == {"last.pt", "metrics.jsonl"}


def curve(out: Path) -> list[dict[str, float]]:
    """Figures of the steps and of held-out text, and each exactly once."""
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


def test_two_processes_and_four_that_go_on_train_as_one_does(alone: Path, runs: Runs) -> None:
    done, steps, _ = runs.stopped[1]
    assert (done, steps) == ("False", "1")
    assert runs.ended[2][0] == "True"
    same_training(runs.folder / "shared", alone)
    assert {path.name for path in (runs.folder / "shared").iterdir()} == {"last.pt", "metrics.jsonl"}


def test_divided_weights_are_trained_as_whole_ones_are(alone: Path, runs: Runs) -> None:
    """Begun in one process, gone on with in two that have half of everything each; and the other way."""
    assert runs.ended[1][0] == "True"
    same_training(runs.folder / "whole", alone)
    assert runs.stopped[2][:2] == ["False", "1"]
    last = toy_trainer(runs.folder / "divided", SHARED, 300)
    assert last.run()
    same_training(runs.folder / "divided", alone)


def test_a_step_is_of_as_many_batches_as_its_recipe_says(tmp_path: Path) -> None:
    """Accumulated: the mean of two batches' gradients, and half as many steps."""
    plain = replace(SHORT, stages=(replace(LORA, lora_rank=0, epochs=1),))
    steps = []
    for count in (0, 2):
        trainer = toy_trainer(tmp_path / str(count), replace(plain, step_batches=count))
        said: list[str] = []
        trainer.report = said.append
        assert not trainer.run(minutes=0)
        steps.append(int(said[0].split()[2]))
        assert f"of {max(1, count) * 2 * 64} slots" in said[0]
    assert steps[1] == steps[0] // 2
    with pytest.raises(ConfigError, match="step_batches must be 0 or more"):
        replace(plain, step_batches=-1)


def test_runs_of_another_batch_do_not_mix(tmp_path: Path) -> None:
    """Also those that were saved when a step was of as many batches as there were processes."""
    trainer = toy_trainer(tmp_path, SHORT)
    assert not trainer.run(minutes=0)
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    assert state.pop("batches a step") == 1
    torch.save(state | {"processes": 2}, tmp_path / "last.pt")
    with pytest.raises(ConfigError, match="was made with other batches a step"):
        load_state(tmp_path, trainer.recipe, trainer._surroundings())
    torch.save(state | {"processes": 1}, tmp_path / "last.pt")
    assert load_state(tmp_path, trainer.recipe, trainer._surroundings()) is not None
