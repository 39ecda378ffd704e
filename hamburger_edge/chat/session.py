"""A conversation on disk: the cache's arrays, what they mean, and everything the next answer depends on.

The file itself is in `session_file.py`. Sizes, shapes, numbers, the hash and the bundle are checked. The
text is the business of the file's owner: slots from a file are used for its own conversation alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hamburger_edge.chat import session_file
from hamburger_edge.chat.session_file import Limits
from hamburger_edge.errors import (
    HamburgerError,
    InputError,
    MissingExtraError,
    SessionError,
)
from hamburger_edge.loop.backend import ModelInfo, Snapshot
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.ledger import Group
from hamburger_edge.support.values import safe_repr

# what impossible contents can end in, wherever they are first used
_DAMAGE = (HamburgerError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Saved:
    """A conversation between two answers, as plain data; the contents of its slots lie beside it."""

    groups: list[Group]
    unfinished: bool
    messages: Sequence[tuple[str, str]]  # role and text
    system: str | None
    options: Mapping[str, Any]  # of `Settings`
    sampler: Mapping[str, Any]  # state of the sampler
    text: Mapping[str, Any]  # state of the text stream
    structure: Mapping[str, Any] | None = None  # that the last answer follows


def save(path: str | PathLike[str], saved: Saved, engine: Engine, owner: object) -> None:
    """The cache is first cut back to this conversation, in case another one used the model since."""
    path = _place(path)
    engine.keep(saved.groups, owner)
    header = {
        "model": _identity(engine.info),
        "slots": engine.ledger.slots,  # the cache holds this many of the groups
        **vars(saved),
    }
    try:
        session_file.write(path, header, engine.backend.snapshot(), _limits(engine.info))
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise SessionError(f"{path}: cannot be written ({reason}): choose another place") from error


@contextmanager
def opened(path: str | PathLike[str], engine: Engine, *, owner: object) -> Iterator[Saved]:
    """What was saved, with the cache filled, for its owner alone. Everything is checked on the way in, also
    by what the block does with it; on any failure the cache is left empty."""
    path = _place(path)
    header, snapshot = _read(path, engine.info)
    try:
        for name, mine in _identity(engine.info).items():
            if (theirs := header["model"][name]) != mine:
                raise SessionError(
                    f"{path}: saved with another model: its {name} is {theirs}, here it is {mine}"
                )
        saved = Saved(
            groups=engine.check_groups(header["groups"]),
            unfinished=bool(header["unfinished"]),
            messages=[(str(role), str(text)) for role, text in header["messages"]],
            system=header["system"],
            options=header["options"],
            sampler=header["sampler"],
            text=header["text"],
            structure=header["structure"],
        )
        if bool(saved.messages) != bool(saved.groups):
            raise ValueError(f"{len(saved.messages)} messages in {len(saved.groups)} groups")
        _fill(engine, saved.groups, header["slots"], snapshot, path, owner)
        yield saved
    except (SessionError, MissingExtraError):
        engine.keep([])
        raise
    except _DAMAGE as error:
        engine.keep([])
        raise SessionError(f"{path}: does not fit this model or is damaged ({error})") from error


def _fill(
    engine: Engine, groups: list[Group], slots: Any, snapshot: Snapshot, path: Path, owner: object
) -> None:
    """The cache, with the first `slots` of the groups."""
    if type(slots) is not int or not 0 <= slots <= len(groups):
        raise ValueError(f"{slots} slots of {len(groups)} groups")
    if slots > engine.info.cache_slots:
        raise SessionError(
            f"{path}: holds {slots} slots, but the cache here has {engine.info.cache_slots}: "
            "load the model with a larger cache_slots"
        )
    try:
        engine.fill(groups[:slots], snapshot, owner)
    except SessionError as error:  # of the backend, which does not know whose cache it is
        raise SessionError(f"{path}: {error}") from error


def _place(path: str | PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise InputError(f"a session is named by its path, got {safe_repr(path)}") from error


def _identity(info: ModelInfo) -> dict[str, Any]:
    names = ("fingerprint", "backend", "precision", "position_rule", "kv_bytes_per_slot", "vocab_size")
    return {name: getattr(info, name) for name in names}


def _limits(info: ModelInfo) -> Limits:
    """Of any session of this model, whatever the capacity of the cache that it was made with."""
    slots = info.context_length
    # a slot's tokens stand in the header as numbers and as text; llama.cpp notes some numbers beside each
    return Limits(
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
    except Exception as error:  # what is damaged can fail in any way
        raise SessionError(f"{path}: truncated or damaged ({str(error) or type(error).__name__})") from error
