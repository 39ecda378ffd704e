"""The draft index: the usual next token after each context in the answers of a task.

A bundle lists it as `draft_index.bin`, in little-endian numbers:

    0   "HBDI", version 1, entries, minimum of answers per entry   4 bytes each
    16  probability of a copied token by match length, 1..5      5 x float32
    36  zeros up to byte 64
    64  keys [entries] uint32, increasing; tokens [entries] uint32;
        probabilities and their lower bounds [entries] uint16 each (65535 stands for 1)

A key is a hash of an answer's last 1, 2, 3, 4, 6, 8, 12, 16 or 24 tokens; START precedes the first token.
An entry is stored only if enough different answers share it. This keeps private content of single answers
out of the file.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hamburger_edge.errors import BundleError
from hamburger_edge.support.files import DRAFT_INDEX, read_regular

MAGIC, VERSION, HEADER, ENTRY = b"HBDI", 1, 64, 12
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # of contexts, in tokens
START = 0xFFFFFFFF
ONE = 65535
MOST_BYTES = 1 << 20
# Default for a model without an index, measured on the commands of `voice-commands`.
COPY_CHANCES = (0.45, 0.65, 0.65, 0.65, 0.75)


class Guess(NamedTuple):
    token: int
    chance: float  # probability that the base chooses it here
    floor: float = 0.0  # lower bound of that probability, given the number of answers counted
    place: int = -1  # index of its copy in the prompt; -1: not copied


def context_keys(answer: Sequence[int]) -> list[int]:
    """Return a key for each length of LENGTHS up to the answer's own (START included)."""
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
    """A read-only table from context keys to guesses."""

    def __init__(self, data: bytes, vocab_size: int, source: object = DRAFT_INDEX) -> None:
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
        """Return the usual next token after the longest known context at the answer's end."""
        found = None
        for key in context_keys(answer):
            longer = self._guesses.get(key)
            if longer is None:
                break  # a context is stored only if its shorter endings are
            found = longer
        return found


def read_draft_index(path: Path, vocab_size: int) -> DraftIndex | None:
    """Read the index from this file; None if the file is missing."""
    try:
        return DraftIndex(read_regular(path, most=MOST_BYTES), vocab_size, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): copy it again") from error


def pack(
    entries: Sequence[tuple[int, Guess]], least: int, copy_chances: Sequence[float] = COPY_CHANCES
) -> bytes:
    """Return the bytes of an index from entries (key, guess)."""
    entries = sorted(entries)
    head = struct.pack("<4s3I5f", MAGIC, VERSION, len(entries), least, *copy_chances)
    columns = (
        np.array([key for key, _ in entries], "<u4"),
        np.array([guess.token for _, guess in entries], "<u4"),
        np.array([int(guess.chance * ONE) for _, guess in entries], "<u2"),
        np.array([int(guess.floor * ONE) for _, guess in entries], "<u2"),
    )
    return head.ljust(HEADER, b"\0") + b"".join(column.tobytes() for column in columns)
