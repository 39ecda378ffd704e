"""Weights from and to disk: base models of any supported layout, and our own checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.gguf_base import load_gguf
from hamburger_edge.models.weights import LoadedBase


def load_base(path: str | Path) -> LoadedBase:
    """A GGUF file, a folder holding one, or a Hugging Face folder."""
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise CheckpointError(
                f"{path}: expected config.json or one .gguf file, found {len(files)} .gguf files"
            )
        path = files[0]
    elif not path.exists():
        raise CheckpointError(f"{path}: no such file or folder")
    base = load_gguf(path)
    if (tokenizer := path.parent / "tokenizer.json").exists():
        base.tokenizer = tokenizer
    if (template := path.parent / "chat_template.json").exists():
        base.chat_template = json.loads(template.read_text(encoding="utf-8"))
    return base
