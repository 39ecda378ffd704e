"""The draft index: what usually follows each context in the answers of a model.

A bundle lists it as `draft_index.bin`, in little-endian numbers:

    0   "HBDI", version 2, entries, minimum of answers per entry   4 bytes each
    16  probability of a copied token by match length, 1..5      5 x float32
    36  probability of a copied word's next token                float32
    40  tokens and rows of a base call with these drafts         2 x float32
    48  zeros up to byte 64
    64  keys [entries] uint32, increasing; tokens [entries] uint32;
        probabilities and their lower bounds [entries] uint16 each (65535 stands for 1)

A key is a hash of a context. There are three kinds of contexts:

    tokens  the last 1, 2, 3, 4, 6, 8, 12, 16 or 24 tokens of the skeleton (copied_words.py): the next token,
            or COPY where a copied run begins
    places  the last 4, the prompt's token before a word and the word's first token, or one of them: whether
            a run that begins here begins with this word
    runs    the last 4 and the prompt's next token, or the last 4 alone: whether a copied run continues

An entry is stored only if enough different answers share it. This keeps private content of single answers
out of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hamburger_edge.drafts.copied_words import COPY, START
from hamburger_edge.errors import BundleError
from hamburger_edge.support.files import DRAFT_INDEX, read_regular

MAGIC, VERSION, HEADER, ENTRY = b"HBDI", 2, 64, 12
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # of contexts, in tokens
PLACE, RUN = 0xFFFFFFFD, 0xFFFFFFFC  # follow the context in keys of these kinds
NEAR, NEAREST = 4, 2  # skeleton tokens in keys of places and runs; in keys of where runs may begin
ONE = 65535
MOST_BYTES = 1 << 20


class Rates(NamedTuple):
    """Measured on held-out answers; by default on answers of `smollm2-135m` that do not loop."""

    copies: Sequence[float] = (0.2, 0.45, 0.65, 0.65, 0.7)  # chance of a copied token by match length, 1..5
    word: float = 0.9  # chance of a copied word's next token
    tokens: float = 1.8  # tokens of a base call
    rows: float = 3.0  # rows of a base call


USUAL_RATES = Rates()


class Guess(NamedTuple):
    token: int  # COPY: the beginning of a copied run
    chance: float  # probability that the base chooses it here
    floor: float = 0.0  # lower bound of that probability, given the number of answers counted
    place: int = -1  # index in the text that it was copied from; -1: not copied
    match: int = 0  # tokens before it that equal the answer's last ones


NOTHING = 0x811C9DC5  # key of the empty context


def longer_key(key: int, token: int) -> int:
    key = ((key ^ token) * 0x01000193) & 0xFFFFFFFF
    return key ^ key >> 13


def context_key(skeleton: Sequence[int], length: int) -> int:
    key = NOTHING
    for token in skeleton[: -length - 1 : -1]:
        key = longer_key(key, token)
    return key


def context_keys(skeleton: Sequence[int]) -> Iterator[int]:
    """Yield a key for each length of LENGTHS up to the skeleton's own, the shortest first."""
    key = NOTHING
    for length, token in enumerate(reversed(skeleton), 1):
        key = longer_key(key, token)
        if length in LENGTHS:
            yield key


def begin_key(skeleton: Sequence[int]) -> int:
    """Return the key of whether a copied run may begin here."""
    return longer_key(context_key(skeleton, NEAREST), PLACE)


def place_keys(skeleton: Sequence[int], before: int, first: int) -> tuple[int, int, int]:
    """Return the keys of a word by its first prompt token and the one before it, the most specific first."""
    key = longer_key(context_key(skeleton, NEAR), PLACE)
    after = longer_key(key, before)
    return longer_key(after, first), after, longer_key(longer_key(key, START), first)


def run_keys(skeleton: Sequence[int], token: int) -> tuple[int, int]:
    """Return the keys of whether a copied run continues with this token, the more specific first."""
    key = longer_key(context_key(skeleton, NEAR), RUN)
    return longer_key(key, token), key


class DraftIndex:
    """A read-only table from context keys to guesses."""

    def __init__(self, data: bytes, vocab_size: int, source: object = DRAFT_INDEX) -> None:
        head = struct.unpack_from("<4s3I8f", data) if len(data) >= HEADER else (b"", 0, 0, 0)
        magic, version, entries, self.least, *rates = head
        whole = len(data) == HEADER + ENTRY * entries <= MOST_BYTES
        if magic != MAGIC or version != VERSION or not whole:
            raise BundleError(f"{source}: not a draft index of version {VERSION}: export the bundle again")
        keys, tokens = np.frombuffer(data, "<u4", 2 * entries, HEADER).reshape(2, entries)
        chances = np.frombuffer(data, "<u2", 2 * entries, HEADER + 8 * entries).reshape(2, entries)
        likely = all(0 <= chance <= 1 for chance in rates[:6]) and all(1 <= rate <= 256 for rate in rates[6:])
        known = (tokens < vocab_size) | (tokens == COPY)
        if not likely or (np.diff(keys.astype(np.int64)) <= 0).any() or not known.all():
            raise BundleError(f"{source}: holds impossible entries: copy or export the bundle again")
        self.rates = Rates(tuple(rates[:5]), *rates[5:])
        self._tokens, self._chances = tokens, chances
        self._row_of = {key: row for row, key in enumerate(keys.tolist())}

    def __len__(self) -> int:
        return len(self._row_of)

    def guess(self, skeleton: Sequence[int]) -> Guess | None:
        """Return the usual next token after the longest known context at the skeleton's end."""
        guess = None
        for key in context_keys(skeleton):
            longer = self._stored(key)
            if longer is None:
                break  # a context is stored only if its shorter endings are
            guess = longer
        return guess

    def may_begin(self, skeleton: Sequence[int]) -> bool:
        """Whether answers usually copy a word here."""
        return begin_key(skeleton) in self._row_of

    def first(self, keys: Sequence[int]) -> Guess | None:
        """Return the entry of the first known key."""
        return next((guess for key in keys if (guess := self._stored(key))), None)

    def _stored(self, key: int) -> Guess | None:
        row = self._row_of.get(key)
        if row is None:
            return None
        chance, floor = self._chances[:, row].tolist()
        return Guess(int(self._tokens[row]), chance / ONE, floor / ONE)


def read_draft_index(path: Path, vocab_size: int) -> DraftIndex | None:
    """Read the index from this file; None if the file is missing."""
    try:
        return DraftIndex(read_regular(path, limit=MOST_BYTES), vocab_size, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): copy it again") from error


def pack(
    entries: Sequence[tuple[int, Guess]],
    least: int,
    rates: Rates = USUAL_RATES,
) -> bytes:
    """Return the bytes of an index from entries (key, guess)."""
    entries = sorted(entries)
    head = struct.pack("<4s3I8f", MAGIC, VERSION, len(entries), least, *rates.copies, *rates[1:])
    columns = (
        np.array([key for key, _ in entries], "<u4"),
        np.array([guess.token for _, guess in entries], "<u4"),
        np.array([int(guess.chance * ONE) for _, guess in entries], "<u2"),
        np.array([int(guess.floor * ONE) for _, guess in entries], "<u2"),
    )
    return head.ljust(HEADER, b"\0") + b"".join(column.tobytes() for column in columns)
