"""A conversation on disk: the cache's arrays, their groups, and all other state of the next answer.

`session_file.py` reads and writes the file. Sizes, shapes, numbers, the hash and the bundle are checked.
The text is not checked against the cache: only the saved conversation itself uses slots from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from hamburger_edge.chat import session_file
from hamburger_edge.chat.session_file import SessionLimits
from hamburger_edge.errors import (
    HamburgerError,
    InputError,
    MissingExtraError,
    SessionError,
)
from hamburger_edge.loop.backend import ModelInfo, Snapshot
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.support.values import safe_repr

# errors that invalid contents can cause at their first use
_DAMAGE = (HamburgerError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def save(path: str | PathLike[str], conversation: Mapping[str, Any], engine: Engine, owner: object) -> None:
    """Write a session: the conversation as plain data, and its slots.

    The cache is first truncated to this conversation: another may have used the model.
    """
    path = _place(path)
    engine.keep(conversation["groups"], owner)
    header = {
        "model": _identity(engine.info),
        "slots": engine.ledger.slots,  # the first groups, one slot each, that are in the cache
        **conversation,
    }
    try:
        session_file.write(path, header, engine.backend.snapshot(), _limits(engine.info))
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        reason = getattr(error, "strerror", None) or error
        raise SessionError(f"{path}: cannot be written ({reason}): choose another place") from error


@contextmanager
def opened(path: str | PathLike[str], engine: Engine, *, owner: object) -> Iterator[dict[str, Any]]:
    """Yield the saved conversation with checked groups, after the cache is filled for `owner` alone.

    Invalid contents raise SessionError, also if only the block detects them. On any failure the cache is
    left empty.
    """
    path = _place(path)
    header, snapshot = _read(path, engine.info)
    try:
        for name, mine in _identity(engine.info).items():
            if (theirs := header["model"][name]) != mine:
                raise SessionError(
                    f"{path}: saved with another model: its {name} is {theirs}, here it is {mine}"
                )
        header["groups"] = groups = engine.check_groups(header["groups"])
        if bool(header["messages"]) != bool(groups):
            raise ValueError(f"{len(header['messages'])} messages in {len(groups)} groups")
        _fill(engine, groups, header["slots"], snapshot, path, owner)
        yield header
    except (SessionError, MissingExtraError):
        engine.keep([])
        raise
    except _DAMAGE as error:
        engine.keep([])
        raise SessionError(f"{path}: does not fit this model or is damaged ({error})") from error


def _fill(
    engine: Engine, groups: list[Group], slots: Any, snapshot: Snapshot, path: Path, owner: object
) -> None:
    """Fill the cache with the snapshot: one slot for each of the first `slots` groups."""
    if type(slots) is not int or not 0 <= slots <= len(groups):
        raise ValueError(f"{slots} slots of {len(groups)} groups")
    if slots > engine.info.cache_slots:
        raise SessionError(
            f"{path}: holds {slots} slots, but the cache here has {engine.info.cache_slots}: "
            "load the model with a larger cache_slots"
        )
    try:
        engine.fill(groups[:slots], snapshot, owner)
    except SessionError as error:  # the backend's error, without the path
        raise SessionError(f"{path}: {error}") from error


def _place(path: str | PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise InputError(f"a session is named by its path, got {safe_repr(path)}") from error


def _identity(info: ModelInfo) -> dict[str, Any]:
    names = ("fingerprint", "backend", "precision", "position_rule", "kv_bytes_per_slot", "vocab_size")
    return {name: getattr(info, name) for name in names}


def _limits(info: ModelInfo) -> SessionLimits:
    """Return the size limits of a session of this model, for any capacity of the cache."""
    slots = info.context_length
    # the header stores a slot's tokens as ids and as text; llama.cpp adds a few numbers per slot
    return SessionLimits(
        (1 << 22) + 256 * slots * info.max_group_tokens, (1 << 16) + slots * (info.kv_bytes_per_slot + 64)
    )


def _read(path: Path, info: ModelInfo) -> tuple[dict[str, Any], Snapshot]:
    try:
        return session_file.read(path, _limits(info))
    except HamburgerError:
        raise
    except FileNotFoundError as error:
        raise SessionError(f"{path}: there is no session here") from error
    except OSError as error:
        raise SessionError(
            f"{path}: cannot be read ({error.strerror}): name a session that you may read"
        ) from error
    except MemoryError as error:
        raise SessionError(f"{path}: not enough memory to read it: close other programs") from error
    except Exception as error:  # a damaged file can raise any error
        raise SessionError(f"{path}: truncated or damaged ({str(error) or type(error).__name__})") from error
