"""Saved conversations, and well-formed ones that say something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hamburger_edge.chat import session_file
from hamburger_edge.chat.session_file import Limits
from hamburger_edge.model import Model
from hamburger_edge.support.cache import own_key

ANY = Limits(1 << 24, 1 << 24)


def save_one(model: Model, path: Path, **options: Any) -> Path:
    chat = model.chat(**options)
    list(chat.send("hello"))
    chat.save(path)
    return path


def rewritten(path: Path, change: Any, key: bytes | None = None) -> None:
    """The session with its header (and arrays) changed, well-formed again, and sealed."""
    header, arrays = session_file.read(path, ANY, None, trust=True)
    change(header, arrays)
    session_file.write(path, header, arrays, key or own_key(), ANY)
