"""Toy bundles of GGUF files, each with the checkpoint it was made from."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import torch

from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.folders import made_once
from helpers import places
from helpers.toys.exports import export
from helpers.toys.toy_bundles import toy_checkpoint

WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_layers": 4, "draft_vocab_size": 100}


@functools.cache
def gguf_bundle(precision: str = "f32", **changes: object) -> tuple[Path, Checkpoint]:
    """Made once for all processes that run tests; do not write into it. At fp32 it has graphs as well."""
    torch.set_num_threads(1)
    asked = hashlib.sha256(repr([precision, sorted(changes.items())]).encode()).hexdigest()[:16]
    folder = places.shared / "gguf" / asked
    checkpoint = toy_checkpoint(folder.with_name(f"{asked}-{os.getpid()}"), **{**WIDE, **changes})
    formats = ["onnx", "gguf"] if precision == "fp32" else ["gguf"]

    def make(folder: Path) -> None:
        export(checkpoint, folder / "bundle", formats=formats, precision=precision, verify=False)

    return made_once(folder, make) / "bundle", checkpoint
