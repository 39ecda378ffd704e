"""Count what follows each context in a model's answers, by different answers."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from hamburger_edge.drafts.copied_words import COPY, START, CopyReader, Reading, Words
from hamburger_edge.drafts.draft_index import NEAREST, begin_key, context_keys, place_keys, run_keys

Tokens = Sequence[int]
Pair = tuple[Tokens, Tokens]  # a prompt and its answer
Context = tuple[int, int]  # order (by kind and length) and key
CONFIDENCE = 1.645  # standard errors of the floors: 95%, one-sided
Kind = Literal["tokens", "places", "runs"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MANY = 20  # times the least number of answers: those behind a place where copies begin
PLACES, RUNS = 100, 101  # orders of contexts of these kinds; those of tokens count up from 0
OTHER = START  # no copy; no answer holds this token


@dataclass(frozen=True)
class Entry:
    kind: Kind
    token: int
    count: int  # different answers that continue with the token
    total: int

    @property
    def floor(self) -> float:
        """The Wilson lower bound of `count / total`."""
        share, square = self.count / self.total, CONFIDENCE**2
        spread = CONFIDENCE * math.sqrt((share * (1 - share) + square / (4 * self.total)) / self.total)
        return (share + square / (2 * self.total) - spread) / (1 + square / self.total)

    @property
    def weight(self) -> int:
        return self.count if self.kind == "tokens" else self.total


def beginnings(pairs: Sequence[Pair], words: Words | None, least: int) -> set[int]:
    """Return the keys of contexts after which most answers begin to copy a word."""
    copied: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    for prompt, answer in pairs if words else ():
        firsts = {word.tokens[0] for word in words.of(prompt).values()} if words else set()
        contexts = ((answer[at - NEAREST : at], answer[at]) for at in range(NEAREST, len(answer)))
        for key, token in {(begin_key(context), token) for context, token in contexts}:
            totals[key] += 1
            copied[key] += token in firsts
    return {key for key, count in copied.items() if count >= MANY * least and 2 * count > totals[key]}


def count_answers(
    pairs: Sequence[Pair], words: Words | None, begins: set[int], least: int
) -> dict[Context, Entry]:
    """Count different answers by context."""
    entries: dict[Context, Entry] = {}
    endings: dict[Context, Context] = {}  # the next shorter one
    for order, events in sorted(_events_of(pairs, words, begins).items()):
        kind: Kind = "tokens" if order < PLACES else "runs" if order == RUNS else "places"
        for key, token, count, total in _counted(events, kind, least):
            entries[order, key] = Entry(kind, token, count, total)
        if 0 < order < PLACES:
            endings |= {
                (order, key): (order - 1, ending)
                for key, ending in zip(events.keys, events.endings, strict=True)
                if (order, key) in entries
            }
    _drop_idle(entries, endings)
    return entries


class _Events:
    """The contexts of one order and the tokens after them, in arrays: a token has several of these."""

    def __init__(self) -> None:
        self.keys, self.endings, self.tokens, self.answers = (array("I") for _ in range(4))


def _events_of(pairs: Sequence[Pair], words: Words | None, begins: set[int]) -> dict[int, _Events]:
    """Return the events by order. Equal answers, which follow each other, have one number."""
    found: dict[int, _Events] = defaultdict(_Events)
    number, newest = -1, None
    for prompt, answer in pairs:
        if answer != newest:
            number, newest = number + 1, answer
        reader = CopyReader(prompt, words, lambda skeleton: begin_key(skeleton) in begins)
        ending = 0
        for order, key, token in _events(reader, answer):
            events = found[order]
            events.keys.append(key)
            events.endings.append(ending)
            events.tokens.append(token)
            events.answers.append(number)
            ending = key
    return found


def _counted(events: _Events, kind: Kind, least: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (key, token, different answers with the token, with any) of contexts that enough of them share.

    The token is the most frequent one, or COPY for other kinds than "tokens".
    """
    columns = (np.frombuffer(column, np.uint32) for column in (events.answers, events.tokens, events.keys))
    answers, tokens, keys = (column.astype(np.int64) for column in columns)
    order = np.lexsort((answers, tokens, keys))
    answers, tokens, keys = answers[order], tokens[order], keys[order]
    fresh = _changes(keys) | _changes(tokens)  # of an event with another key or token than the one before
    starts = np.flatnonzero(fresh)
    counts = np.add.reduceat(fresh | _changes(answers), starts, dtype=np.int64)
    keys, tokens = keys[starts], tokens[starts]
    first = np.flatnonzero(_changes(keys))
    totals = np.add.reduceat(counts, first)
    if kind == "tokens":
        shared = enough = np.maximum.reduceat(counts, first)
        chosen = tokens[np.lexsort((tokens, -counts, keys))[first]]
    else:
        shared, enough = np.add.reduceat(np.where(tokens == COPY, counts, 0), first), totals
        chosen = np.full(len(first), COPY)
    yield from np.stack([keys[first], chosen, shared, totals])[:, enough >= least].T.tolist()


def _changes(column: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return where a value differs from the one before; the first one does."""
    changes: npt.NDArray[np.bool_] = np.diff(column, prepend=column[0] - 1) != 0
    return changes


def _drop_idle(entries: dict[Context, Entry], endings: Mapping[Context, Context]) -> None:
    """Drop contexts that name the token of their own ending no more surely, the longest first."""
    needed: set[Context] = set()
    for context in sorted((context for context in entries if 0 < context[0] < PLACES), reverse=True):
        entry, ending = entries[context], endings[context]
        usual = entries.get(ending)
        idle = usual and usual.token == entry.token and usual.floor >= entry.floor
        if idle and context not in needed:
            del entries[context]
        else:
            needed.add(ending)


def _events(reader: CopyReader, answer: Tokens) -> Iterator[tuple[int, int, int]]:
    """Yield (order, key, token) for each token of an answer and its contexts, the shorter ones first."""
    reading = Reading()
    for token in answer:
        expected, skeleton = reader.expected(reading), reading.skeleton
        following = reader.read(reading, token)
        if expected is not None and not reading.rest:
            for key in run_keys(skeleton, expected):
                yield RUNS, key, COPY if token == expected else OTHER
        if token != expected:
            begins = following.place >= 0
            for length, key in enumerate(context_keys(skeleton)):
                yield length, key, COPY if begins else token
            for position, word in reader.words.items() if begins else ():
                for key in word_keys(reader, skeleton, position):
                    yield PLACES, key, COPY if word.behind == following.place else OTHER
        reading = following


def word_keys(reader: CopyReader, skeleton: Tokens, position: int) -> tuple[int, int, int]:
    before = reader.prompt[position - 1] if position else START
    return place_keys(skeleton, before, reader.prompt[position])
