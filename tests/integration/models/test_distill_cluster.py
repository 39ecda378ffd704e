"""Workers of a Ray cluster make the bytes that one process makes, also where one of them is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from places import contents
from toy_checkpoints import write_hf
from toy_distillation import PROMPTS, SETTINGS, TURNS, make, toy_base
from toy_models import toy_model
from toy_tokenizers import byte_level

from hamburger_edge.cli import main as cli
from hamburger_edge.errors import ConfigError, HamburgerError, InputError
from hamburger_edge.models.distillation import distill as distilling
from hamburger_edge.models.distillation.cluster import Cluster
from hamburger_edge.models.distillation.distill import ShardMaker, distill
from hamburger_edge.models.training.data.batches import DistilledData

pytest.importorskip("ray", reason="needs the extra [cluster]")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signal that kills")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by one process."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("alone")
    assert len(make(folder).shards) > 2
    return folder


def together(out: str | Path, cluster: Cluster) -> None:
    source = {"base": "toy"}
    distill(toy_base(), out, SETTINGS, TURNS, PROMPTS, source, dtype=torch.float32, cluster=cluster)


def test_two_workers_make_the_bytes_of_one_process(alone: Path, cluster: Cluster) -> None:
    """In object storage: nobody but the one who joins shards writes there."""
    together("memory://together", cluster)
    data, same = DistilledData.load("memory://together"), DistilledData.load(alone)
    assert data.shards == same.shards
    assert data.ids.tobytes() == same.ids.tobytes()
    assert data.sha256 == same.sha256


def test_a_shard_whose_worker_is_killed_is_made_by_another(
    alone: Path, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"

    def worker(*words: Any) -> Callable[[int], Any]:
        maker = ShardMaker(*words[:-1])

        def make(number: int) -> Any:
            def tick(tokens: int) -> None:
                if number == 1 and not killed.exists():
                    killed.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

            return maker.make(number, tick)

        return make

    monkeypatch.setattr(distilling, "worker", worker)
    together(tmp_path / "data", cluster)
    assert killed.exists()
    assert contents(tmp_path / "data") == contents(alone)


def test_what_kills_every_worker_ends_the_run(cluster: Cluster) -> None:
    def worker() -> Callable[[int], None]:
        return lambda job: os.kill(os.getpid(), signal.SIGKILL)

    jobs = iter([7])
    with pytest.raises(HamburgerError, match="3 workers were lost at 7, the last with: "):
        next(cluster.results(worker, lambda: next(jobs, None)))


def test_what_one_worker_is_lost_at_another_that_was_idle_does(cluster: Cluster, tmp_path: Path) -> None:
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


def test_an_error_in_a_worker_is_the_same_here(cluster: Cluster) -> None:
    def worker() -> Callable[[int], None]:
        raise ConfigError("the base: has no layers")

    with pytest.raises(ConfigError, match=r"^the base: has no layers$"):
        next(cluster.results(worker, lambda: 7))


def test_the_command(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
