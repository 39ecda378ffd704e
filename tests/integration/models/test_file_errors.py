"""A file that cannot be read or written is a line of error: no waiting, and nothing half-written."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.toys.toy_training import SHORT
from safetensors.numpy import save_file

from hamburger_edge.bundle.external_data import external_files
from hamburger_edge.bundle.manifest import GGUFEntry
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.options import _read
from hamburger_edge.errors import HamburgerError
from hamburger_edge.models.bases.huggingface import read_config
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.weights import check_tokenizer, read_safetensors
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.checkpoints.lightning import load_lightning
from hamburger_edge.models.checkpoints.rows import save_rows
from hamburger_edge.models.training.run_state import load_state
from hamburger_edge.models.training.training_recipe import read_recipe
from hamburger_edge.runtimes.llamacpp.gguf_file import GGUF
from hamburger_edge.support.files import library_writes, write_atomically
from hamburger_edge.support.strict import read_lines

resource = pytest.importorskip("resource", reason="no pipes with a path, no limit of a file's size")

# opened functions, by their names in the modules that call them
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "manifest": ("manifest.json", lambda path: load_manifest(path.parent)),
    "graph": ("base.onnx", external_files),
    "tokenizer": ("tokenizer.json", Tokenizer),
    "checkpoint's tokenizer": ("tokenizer.json", lambda path: check_tokenizer(path, 9)),
    "checkpoint": ("hamburger.json", lambda path: load_checkpoint(path.parent)),
    "base": ("config.json", lambda path: read_config(path, has_head=False)),
    "GGUF base": ("base.gguf", load_base),
    "GGUF of a bundle": ("base.gguf", lambda path: GGUF(path, GGUFEntry(path.name, 1, ""))),
    "safetensors": ("model.safetensors", lambda path: list(read_safetensors(path))),
    "Lightning": ("model.ckpt", lambda path: load_lightning(path, None, ())),  # type: ignore[arg-type]
    "recipe": ("recipe.toml", read_recipe),
    "prompts": ("prompts.jsonl", read_lines),
    "schema": ("schema.json", lambda path: _read("--json-schema", str(path))),
    "save of a run": ("last.pt", lambda path: load_state(path.parent, SHORT, {})),
}


@pytest.fixture
def impatient() -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", READERS)
def test_pipe_is_refused(what: str, tmp_path: Path) -> None:
    name, read = READERS[what]
    os.mkfifo(tmp_path / name)
    with pytest.raises((HamburgerError, OSError), match="regular") as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "torch": lambda path: torch.save({"a": torch.zeros(100, 100)}, path),
    "safetensors": lambda path: save_file({"a": np.zeros((100, 100))}, path),
    "rows": lambda path: save_rows(path, {"a": torch.zeros(100, 100)}, "fp32"),
}


@pytest.mark.parametrize("library", WRITERS)
def test_failed_library_write_leaves_the_old_file(library: str, tmp_path: Path) -> None:
    """No file may grow beyond 10,000 bytes, as if the disk were full then."""
    path = tmp_path / "file"
    path.write_bytes(b"before")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error of `write` instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limit[1]))
    try:
        with (
            pytest.raises(OSError, match="not written") as caught,
            write_atomically(path) as temporary,
            library_writes(temporary),
        ):
            WRITERS[library](temporary)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(caught.value.filename).startswith(str(tmp_path))
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
