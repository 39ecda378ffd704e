"""Checkpoints in the layout of the reference implementation, which are pickles."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toys.toy_checkpoints import (
    lightning_model,
    lightning_state,
    same_outputs,
    same_weights,
    write_hf,
)

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.checkpoints import checkpoint
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint


@pytest.fixture
def reference() -> Hamburger:
    return lightning_model()


def test_lightning_checkpoint_is_loaded(reference: Hamburger, tmp_path: Path) -> None:
    base = write_hf(tmp_path / "base", reference)
    more = {"epoch": 1, "hyper_parameters": {"max_group_tokens": 4}}
    torch.save({"state_dict": lightning_state(reference), **more}, tmp_path / "last.ckpt")
    with pytest.raises(CheckpointError, match=r"put the base's config\.json beside it"):
        load_checkpoint(tmp_path / "last.ckpt")
    loaded = load_checkpoint(tmp_path / "last.ckpt", base=base)
    assert loaded.model.config == reference.config
    state = {
        name: tensor.to(torch.bfloat16).float() if tensor.is_floating_point() else tensor
        for name, tensor in reference.state_dict().items()
    }
    rounded = checkpoint.build(reference.config, state)
    same_weights(loaded.model, rounded)
    same_outputs(loaded.model, rounded)
    assert loaded.chat_template is None
    (base / "chat_markup.json").write_text('{"kind": "llama3"}')
    (tmp_path / "last.ckpt").rename(base / "last.ckpt")
    assert load_checkpoint(base / "last.ckpt").chat_template == asdict(ChatTemplate.preset("llama3"))


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("sprung"),))


def test_bad_lightning_file_is_refused(
    reference: Hamburger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_hf(tmp_path, reference)
    path = tmp_path / "last.ckpt"
    contents: dict[str, Any] = {
        "holds more than tensors, which is never run": {"state_dict": {"a": Trap()}},
        "has no state_dict": {"weights": {}},
        r"unknown tensor model\.model\.vi": {"state_dict": {"model.model.vision.weight": torch.ones(1)}},
        r"missing tensor comp_embedder\.merger\.pos": {"state_dict": {}},
        "micro_layers must be positive": {"state_dict": {"comp_embedder.merger.pos": torch.ones(4, 64)}},
    }
    for message, content in contents.items():
        torch.save(content, path)
        with pytest.raises(CheckpointError, match=rf"last\.ckpt: .*{message}"):
            load_checkpoint(path)
    assert not (tmp_path / "sprung").exists()
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"nonsense", pickle.dumps({"state_dict": {}})):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"last\.ckpt: truncated"):
            load_checkpoint(path)
    path.unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        load_checkpoint(path)
