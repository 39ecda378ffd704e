"""The draft index: which token usually follows which context in the answers of a task.

A bundle lists it as `draft_index.bin`, in little-endian numbers:

    0   "HBDI", version 1, entries, least answers per entry    4 bytes each
    16  chance of a copied token by length of the match, 1..5   5 x float32
    36  zeros up to byte 64
    64  keys [entries] uint32, rising; tokens [entries] uint32; chances, floors [entries] uint16 (1 is 65535)

A key is a hash of an answer's last 1, 2, 3, 4, 6, 8, 12, 16 or 24 tokens; START stands before the first.
An entry is stored only if enough different answers share it, so no answer's private content is in the file.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hamburger_edge.errors import BundleError
from hamburger_edge.support.files import read_regular

FILE = "draft_index.bin"
MAGIC, VERSION, HEADER, ENTRY = b"HBDI", 1, 64, 12
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # of contexts, in tokens
START = 0xFFFFFFFF
ONE = 65535
MOST_BYTES = 1 << 20
# Copies of a model without an index: measured on the commands of `voice-commands`.
COPY_CHANCES = (0.45, 0.65, 0.65, 0.65, 0.75)


class Guess(NamedTuple):
    token: int
    chance: float  # that the base chooses it here
    floor: float = 0.0  # lower bound of that chance, given the number of answers behind it
    place: int = -1  # of the prompt, where it was copied from


def context_keys(answer: Sequence[int]) -> list[int]:
    """Keys of the answer's last tokens, one for each of LENGTHS that it has."""
    keys, key = [], 0x811C9DC5
    for length in range(1, LENGTHS[-1] + 1):
        if length > len(answer) + 1:
            break
        token = answer[-length] if length <= len(answer) else START
        key = ((key ^ token) * 0x01000193) & 0xFFFFFFFF
        key ^= key >> 13
        if length in LENGTHS:
            keys.append(key)
    return keys


class DraftIndex:
    """Looks up the longest known context."""

    def __init__(self, data: bytes, vocab_size: int, source: object = FILE) -> None:
        head = struct.unpack_from("<4s3I5f", data) if len(data) >= HEADER else (b"", 0, 0, 0)
        magic, version, entries, self.least, *copies = head
        whole = len(data) == HEADER + ENTRY * entries <= MOST_BYTES
        if magic != MAGIC or version != VERSION or not whole:
            raise BundleError(f"{source}: not a draft index of version {VERSION}: export the bundle again")
        keys, tokens = np.frombuffer(data, "<u4", 2 * entries, HEADER).reshape(2, entries)
        chances = np.frombuffer(data, "<u2", 2 * entries, HEADER + 8 * entries).reshape(2, entries)
        likely = all(0 <= chance <= 1 for chance in copies)
        if not likely or (np.diff(keys.astype(np.int64)) <= 0).any() or (tokens >= vocab_size).any():
            raise BundleError(f"{source}: holds impossible entries: copy or export the bundle again")
        self.copy_chances: tuple[float, ...] = tuple(copies)
        rows = zip(tokens.tolist(), *(chances / ONE).tolist(), strict=True)
        self._guesses = dict(zip(keys.tolist(), itertools.starmap(Guess, rows), strict=True))

    def __len__(self) -> int:
        return len(self._guesses)

    def guess(self, answer: Sequence[int]) -> Guess | None:
        """The token that usually follows the answer's longest known ending."""
        found = None
        for key in context_keys(answer):
            longer = self._guesses.get(key)
            if longer is None:
                break  # a context is known only if its own ending is
            found = longer
        return found


def read_draft_index(path: Path, vocab_size: int) -> DraftIndex | None:
    """The index in this file, if there is one."""
    try:
        return DraftIndex(read_regular(path, most=MOST_BYTES), vocab_size, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): copy it again") from error


def pack(
    entries: Sequence[tuple[int, Guess]], least: int, copy_chances: Sequence[float] = COPY_CHANCES
) -> bytes:
    """The bytes of an index; entries are (key, guess)."""
    entries = sorted(entries)
    head = struct.pack("<4s3I5f", MAGIC, VERSION, len(entries), least, *copy_chances)
    columns = (
        np.array([key for key, _ in entries], "<u4"),
        np.array([guess.token for _, guess in entries], "<u4"),
        np.array([int(guess.chance * ONE) for _, guess in entries], "<u2"),
        np.array([int(guess.floor * ONE) for _, guess in entries], "<u2"),
    )
    return head.ljust(HEADER, b"\0") + b"".join(column.tobytes() for column in columns)
