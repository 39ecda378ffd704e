"""Saved conversations, and well-formed ones that say something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hamburger_edge.chat import session_file
from hamburger_edge.chat.session_file import Limits
from hamburger_edge.model import Model

# every kind of them
OPTIONS: dict[str, Any] = {
    "confidence": 0.4,
    "temperature": 0.9,
    "seed": 11,
    "top_p": 0.95,
    "frequency_penalty": 0.2,
    "logit_bias": {40: 1.5, 41: -100},
    "stop": ["zq"],
    "max_tokens": 25,
}
ANY = Limits(1 << 24, 1 << 24)


def save_one(model: Model, path: Path, **options: Any) -> Path:
    chat = model.chat(**options)
    list(chat.send("hello"))
    chat.save(path)
    return path


def rewritten(path: Path, change: Any) -> None:
    """The session with its header (and arrays) changed, and well-formed again."""
    header, arrays = session_file.read(path, ANY)
    change(header, arrays)
    session_file.write(path, header, arrays, ANY)
