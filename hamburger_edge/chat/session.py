"""A conversation on disk: the cache's arrays, what they mean, and everything the next answer depends on.

The file is a plain zip of .npy arrays: `header`, JSON as bytes, and `kv.NAME` for each array of the
backend's snapshot. It is written beside its place and renamed, and it is read without pickle.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hamburger_edge.errors import HamburgerError, InputError, MissingExtraError, SessionError
from hamburger_edge.loop.backend import ModelInfo, Snapshot
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.ledger import Group
from hamburger_edge.support.files import write_atomically

FORMAT, VERSION = "hamburger-edge session", 1
_KV = "kv."
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


def save(path: str | PathLike[str], saved: Saved, engine: Engine) -> None:
    """The cache is first cut back to this conversation, in case another one used the model since."""
    path = _place(path)
    engine.keep(saved.groups)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": _identity(engine.info),
        "slots": engine.ledger.slots,  # the cache holds this many of the groups
        **vars(saved),
    }
    arrays: Snapshot = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
    arrays |= {_KV + name: array for name, array in engine.backend.snapshot().items()}
    _write(path, arrays)


@contextmanager
def opened(path: str | PathLike[str], engine: Engine) -> Iterator[Saved]:
    """What was saved, with the cache filled. Everything is checked on the way in, also by what the block
    does with it; on any failure the cache is left empty."""
    path = _place(path)
    header, snapshot = _read(path)
    if header.get("format") != FORMAT:
        raise SessionError(f"{path}: not a session of this program")
    if header.get("version") != VERSION:
        raise SessionError(f"{path}: session version {header.get('version')!r}, this program reads {VERSION}")
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
            structure=header.get("structure"),
        )
        if bool(saved.messages) != bool(saved.groups):
            raise ValueError(f"{len(saved.messages)} messages in {len(saved.groups)} groups")
        _fill(engine, saved.groups, header["slots"], snapshot, path)
        yield saved
    except (SessionError, MissingExtraError):
        engine.keep([])
        raise
    except _DAMAGE as error:
        engine.keep([])
        raise SessionError(f"{path}: does not fit this model or is damaged ({error})") from error


def _fill(engine: Engine, groups: list[Group], slots: Any, snapshot: Snapshot, path: Path) -> None:
    """The cache, with the first `slots` of the groups."""
    engine.keep([])
    if engine.info.capacity < slots <= len(groups):
        raise SessionError(
            f"{path}: holds {slots} slots, but the cache here has {engine.info.capacity}: "
            "load the model with a larger context"
        )
    for group in groups[:slots]:
        engine.ledger.append(group)
    engine.backend.restore(snapshot)
    if not engine.backend.slots == engine.ledger.slots == slots:
        raise ValueError(f"{slots} slots recorded, {engine.backend.slots} restored")


def _place(path: str | PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise InputError(f"a session is named by its path, got {path!r}") from error


def _identity(info: ModelInfo) -> dict[str, Any]:
    names = ("fingerprint", "backend", "precision", "position_rule", "kv_bytes_per_slot", "vocab_size")
    return {name: getattr(info, name) for name in names}


def _write(path: Path, arrays: Snapshot) -> None:
    try:
        with write_atomically(path, private=True) as temporary, open(temporary, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise SessionError(f"{path}: cannot be written ({reason}): choose another place") from error


def _read(path: Path) -> tuple[dict[str, Any], Snapshot]:
    """Entries are read whole, their checksums verified, before anything in them is believed."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below)
    except FileNotFoundError as error:
        raise SessionError(f"{path}: there is no session here") from error
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise SessionError(f"{path}: cannot be read ({reason}): name a session that you may read") from error
    try:
        with file, zipfile.ZipFile(file) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("compressed entries")
            members = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
        arrays: Snapshot = {
            name: np.load(io.BytesIO(data), allow_pickle=False) for name, data in members.items()
        }
        header: dict[str, Any] = dict(json.loads(arrays.pop("header").tobytes()))
        return header, {name.removeprefix(_KV): array for name, array in arrays.items()}
    except MemoryError as error:
        raise SessionError(f"{path}: not enough memory to read it: close other programs") from error
    except Exception as error:  # a damaged zip can fail in any way
        raise SessionError(f"{path}: truncated or damaged ({str(error) or type(error).__name__})") from error
