"""Toy bundles of GGUF files, each with the checkpoint it was made from."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from exports import export
from toy_bundles import toy_checkpoint

from hamburger_edge.models.checkpoints.checkpoint import Checkpoint

WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_layers": 4, "draft_vocab_size": 100}
FOLDER = tempfile.TemporaryDirectory(prefix="gguf-bundles-")


@functools.cache
def gguf_bundle(precision: str = "f32", **changes: object) -> tuple[Path, Checkpoint]:
    """Do not write into it."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    checkpoint = toy_checkpoint(folder / "checkpoint", **{**WIDE, **changes})
    out = folder / "bundle"
    return export(checkpoint, out, formats=["gguf"], precision=precision, verify=False), checkpoint
