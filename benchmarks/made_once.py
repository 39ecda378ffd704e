"""Build a cache folder once. An interrupted build leaves no folder."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from hamburger_edge.support.files import locked
from hamburger_edge.support.folders import publish


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`; if it does not exist, `make` fills a temporary folder, which is then renamed.

    A lock file admits one process at a time.
    """
    with locked(folder.with_name(f".{folder.name}.lock")):
        if not folder.exists():
            for stale in folder.parent.glob(f".{folder.name}.*.partial"):  # from a killed run
                shutil.rmtree(stale, ignore_errors=True)
            partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
            try:
                partial.mkdir(parents=True)
                make(partial)
                publish(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder
