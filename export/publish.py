"""A finished folder takes its name in one step, also where another folder has it."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import sys
from pathlib import Path

from hamburger_edge.errors import InputError
from hamburger_edge.support.files import flush, publish


def put_in_place(partial: Path, folder: Path, *, replace: bool) -> None:
    """Rename `partial` to `folder`. With `replace`, what was there is swapped out and deleted.

    At every moment the name stands for the old folder or for the new one, where the system can swap two
    names; elsewhere there is an instant with neither.
    """
    if not folder.exists():
        publish(partial, folder)
        return
    if not replace:
        raise InputError(f"{folder} appeared while this export ran: use --force to replace it")
    flush(partial)
    if _swap(partial, folder):
        shutil.rmtree(partial)  # now the old one
    else:
        publish(partial, folder)


def _swap(first: Path, second: Path) -> bool:
    """Exchange two names; False where this system or file system has no such call."""
    library = (
        ctypes.CDLL(ctypes.util.find_library("c") or None, use_errno=True) if os.name == "posix" else None
    )
    names = os.fsencode(first), os.fsencode(second)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE on Linux and RENAME_SWAP on macOS
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        return bool(library.renameat2(here, names[0], here, names[1], exchange) == 0)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return bool(library.renamex_np(*names, exchange) == 0)
    return False
