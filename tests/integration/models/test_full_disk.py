"""A file that cannot be written to its end: one clear OSError, which the command line tells in a line; what
was there stays, and nothing half-written is found later. The libraries that write had errors of their own,
which ended in a traceback.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from toy_checkpoints import save
from toy_models import toy_model

from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.rows import save_rows
from hamburger_edge.models.training.metrics import append_metrics, read_metrics
from hamburger_edge.support.files import library_writes, write_atomically

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size")


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as if the disk were full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error of `write` instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    old = save(tmp_path / "checkpoint", toy_model(seed=1))
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    with room(20_000), pytest.raises(OSError, match="not written"):
        save(tmp_path / "checkpoint", toy_model(seed=2))
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    assert not list(tmp_path.glob(".*"))
    load_checkpoint(old)
    save(tmp_path / "checkpoint", toy_model(seed=2))  # there is room again


@pytest.mark.parametrize("library", ["torch", "safetensors", "rows"])
def test_libraries_fail_like_all_else_that_writes(library: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    write = {
        "torch": lambda to: torch.save({"a": torch.zeros(100, 100)}, to),
        "safetensors": lambda to: save_file({"a": np.zeros((100, 100))}, to),
        "rows": lambda to: save_rows(to, {"a": torch.zeros(100, 100)}, "fp32"),
    }[library]
    with (
        room(10_000),
        pytest.raises(OSError, match="not written") as caught,
        write_atomically(path) as temporary,
        library_writes(temporary),
    ):
        write(temporary)
    assert str(caught.value.filename).startswith(str(tmp_path))
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_half_a_line_of_metrics_does_not_spoil_the_rest(tmp_path: Path) -> None:
    """What came after a kill amid a line was written behind it, and nothing could be read again."""
    append_metrics(tmp_path, "train", "all", 1, {"loss": 2.0})
    path = tmp_path / "metrics.jsonl"
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"kind": "train", "stage": "all", "st')
    assert read_metrics(path)[0] == {("train", "loss"): {1: 2.0}}
    append_metrics(tmp_path, "train", "all", 2, {"loss": 1.0})
    assert read_metrics(path)[0] == {("train", "loss"): {1: 2.0, 2: 1.0}}
