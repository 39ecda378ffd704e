"""What takes minutes to make and stays in the cache folder: made once, whole or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from hamburger_edge.support.files import locked
from hamburger_edge.support.folders import publish


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder. Unless it is there, `make` fills it under another name, in one process at a time."""
    with locked(folder.with_name(f".{folder.name}.lock")):
        if not folder.exists():
            for stale in folder.parent.glob(f".{folder.name}.*.partial"):  # of a killed run
                shutil.rmtree(stale, ignore_errors=True)
            partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
            try:
                partial.mkdir(parents=True)
                make(partial)
                publish(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder
