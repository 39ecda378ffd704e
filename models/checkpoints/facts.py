"""Facts measured after training and written into a checkpoint: the recommended setting, the opening.

This needs no PyTorch.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.support.files import sha256, write_atomically
from hamburger_edge.support.strict import read_json

SUMS = "SHA256SUMS"  # of built-in checkpoints


def check_checkpoint(folder: Path) -> Path:
    """Check the checkpoint before work begins."""
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{folder}: holds no {MANIFEST}: not a HAMburger checkpoint")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CheckpointError(f"{folder}: may not be written to: copy it, and name the copy")
    return folder


def write_into(folder: Path, **facts: Any) -> None:
    """Write facts into a checkpoint's manifest. None removes a fact."""
    manifest = {
        name: fact for name, fact in (read_json(folder / MANIFEST) | facts).items() if fact is not None
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    put_file(folder, MANIFEST, f"{text}\n".encode())


def put_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a checkpoint, and its hash into SHA256SUMS if that exists."""
    path = folder / name
    try:
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)
        if (sums := folder / SUMS).is_file():
            lines = [line for line in sums.read_text().splitlines() if not line.endswith(f"  {name}")]
            lines.append(f"{sha256(path)}  {name}")
            with write_atomically(sums) as temporary:
                temporary.write_text("\n".join(sorted(lines, key=lambda line: line.split()[-1])) + "\n")
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error.strerror}): check space and permissions"
        ) from error
