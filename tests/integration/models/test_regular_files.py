"""Everywhere a path is taken, a pipe or a device is a line of error at once: no waiting, no memory filled."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_training import SHORT

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
from hamburger_edge.models.training.run_state import load_state
from hamburger_edge.models.training.training_recipe import read_recipe
from hamburger_edge.runtimes.llamacpp.gguf_file import GGUF
from hamburger_edge.support.strict import read_json, read_lines, read_toml

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pipes with a path there")

# what is opened, by the name that it has where it is looked for
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
    "TOML": ("recipe.toml", read_toml),
    "JSON": ("any.json", read_json),
    "prompts": ("prompts.jsonl", read_lines),
    "schema": ("schema.json", lambda path: _read("--json-schema", str(path))),
    "save of a run": ("last.pt", lambda path: load_state(path.parent, SHORT, {})),
}


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("what", READERS)
def test_a_pipe_and_a_device_are_refused(what: str, kind: str, tmp_path: Path) -> None:
    name, read = READERS[what]
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises((HamburgerError, OSError), match="regular") as caught:
        read(path)
    assert "\n" not in str(caught.value)
