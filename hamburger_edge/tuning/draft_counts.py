"""Count what follows each context in a task's training answers, by different answers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

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
OTHER = -1


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
    shared: dict[Context, Counter[int]] = defaultdict(Counter)  # -> token -> answers
    endings: dict[Context, Context] = {}  # the next shorter one
    seen: set[tuple[int, int, int]] = set()
    newest = None
    for prompt, answer in pairs:
        if answer != newest:
            newest, seen = answer, set()
        reader = CopyReader(prompt, words, lambda skeleton: begin_key(skeleton) in begins)
        ending = (0, 0)
        for order, key, token in _events(reader, answer):
            if 0 < order < PLACES:
                endings[order, key] = ending
            ending = order, key
            if (order, key, token) not in seen:
                seen.add((order, key, token))
                shared[order, key][token] += 1
    entries = {}
    for (order, key), tokens in shared.items():
        total = sum(tokens.values())
        if order < PLACES:
            token, count = tokens.most_common(1)[0]
            if count >= least:
                entries[order, key] = Entry("tokens", token, count, total)
        elif total >= least:
            kind: Kind = "runs" if order == RUNS else "places"
            entries[order, key] = Entry(kind, COPY, tokens[COPY], total)
    _drop_idle(entries, endings)
    return entries


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
    """Yield (order, key, token) of what each token of an answer shows; OTHER: it is no copy."""
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
