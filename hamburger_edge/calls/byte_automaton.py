"""A finite automaton over bytes: built from parts, made deterministic state by state as answers reach them.

State 0 is dead: no text continues from it. A state's distance is the number of bytes of the shortest text
that completes the answer from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

NEVER = 1 << 30  # the distance of a state that no text completes

# Lead bytes of UTF-8 with the ranges of the bytes that follow.
_TAIL = (0x80, 0xBF)
_SEQUENCES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0xC2, 0xDF), _TAIL),
    ((0xE0, 0xE0), (0xA0, 0xBF), _TAIL),
    ((0xE1, 0xEC), _TAIL, _TAIL),
    ((0xED, 0xED), (0x80, 0x9F), _TAIL),
    ((0xEE, 0xEF), _TAIL, _TAIL),
    ((0xF0, 0xF0), (0x90, 0xBF), _TAIL, _TAIL),
    ((0xF1, 0xF3), _TAIL, _TAIL, _TAIL),
    ((0xF4, 0xF4), (0x80, 0x8F), _TAIL, _TAIL),
)


class Builder:
    """The nondeterministic automaton. Each method adds a part after a node and returns the part's end."""

    def __init__(self) -> None:
        self.edges: list[list[tuple[int, int, int]]] = []  # of each node: first byte, last byte, next node
        self.skips: list[list[int]] = []  # of each node: nodes that it reaches without a byte
        self.copying: dict[int, str] = {}  # nodes of a text that copies the prompt -> marks that may end it

    def node(self) -> int:
        self.edges.append([])
        self.skips.append([])
        return len(self.edges) - 1

    def skip(self, start: int, end: int) -> None:
        self.skips[start].append(end)

    def byte(self, start: int, low: int, high: int, end: int | None = None) -> int:
        end = self.node() if end is None else end
        self.edges[start].append((low, high, end))
        return end

    def literal(self, start: int, text: str) -> int:
        for byte in text.encode():
            start = self.byte(start, byte, byte)
        return start

    def either(self, ends: Iterable[int]) -> int:
        """Return a node that all of these reach."""
        joined = self.node()
        for end in ends:
            self.skip(end, joined)
        return joined

    def text(
        self, start: int, excluded: str, escapes: str, first: str = "", copied: str | None = None
    ) -> int:
        """Any text without control characters; excluded characters only as escapes, after a backslash.

        The characters `first` are excluded at the beginning alone. `copied` are the marks that may end a text
        that copies the prompt.
        """
        loop = self.node()
        begin = self.node() if first else loop
        self.skip(start, begin)
        self._character(loop, loop, excluded, escapes)
        if first:
            self._character(begin, loop, excluded + first, escapes)
        if copied is not None:
            self.copying |= dict.fromkeys(range(loop, len(self.edges)), copied)
        return self.either([begin, loop]) if first else loop

    def _character(self, start: int, end: int, excluded: str, escapes: str) -> None:
        for byte in range(0x20, 0x7F):
            if chr(byte) not in excluded:
                self.byte(start, byte, byte, end)
        for sequence in _SEQUENCES:
            node = start
            for low, high in sequence[:-1]:
                node = self.byte(node, low, high)
            self.byte(node, *sequence[-1], end)
        backslash = self.byte(start, 0x5C, 0x5C)
        for letter in escapes:
            self.byte(backslash, ord(letter), ord(letter), end)

    def digits(self, start: int, count: int) -> int:
        for _ in range(count):
            start = self.byte(start, 0x30, 0x39)
        return start

    def between(self, start: int, low: int, high: int) -> int:
        """The whole numbers from `low` to `high`, at least 0, without leading zeros."""
        ends = []
        for length in range(len(str(low)), len(str(high)) + 1):
            first = max(low, 10 ** (length - 1) if length > 1 else 0)
            last = min(high, 10**length - 1)
            ends.append(self._same_length(start, str(first), str(last)))
        return self.either(ends)

    def _same_length(self, start: int, low: str, high: str) -> int:
        if not low:
            return start
        rest = len(low) - 1
        if set(low) == {"0"} and set(high) == {"9"}:
            return self.digits(start, rest + 1)
        if low[0] == high[0]:
            return self._same_length(self.literal(start, low[0]), low[1:], high[1:])
        ends = [
            self._same_length(self.literal(start, low[0]), low[1:], "9" * rest),
            self._same_length(self.literal(start, high[0]), "0" * rest, high[1:]),
        ]
        if int(high[0]) - int(low[0]) > 1:
            middle = self.byte(start, ord(low[0]) + 1, ord(high[0]) - 1)
            ends.append(self.digits(middle, rest))
        return self.either(ends)


class States:
    """The deterministic states of an automaton, computed on first use."""

    def __init__(self, builder: Builder, start: int, end: int) -> None:
        self._edges, self._skips, self._end = builder.edges, builder.skips, end
        self._copying = builder.copying
        self._distances = self._all_distances()
        self.longest_distance = max(one for one in self._distances if one < NEVER)
        self._numbers: dict[frozenset[int], int] = {frozenset(): 0}
        self._nodes: list[frozenset[int]] = [frozenset()]
        self._table = np.zeros((64, 256), np.int32)
        self._known = [True]
        self._distance = [NEVER]
        self._marks: list[str | None] = [None]
        self.start = self._number({start})

    def distance(self, state: int) -> int:
        return self._distance[state]

    def distances(self) -> Ints:
        return np.array(self._distance, np.int32)

    def copying(self, state: int) -> str | None:
        """Return the marks that may end the copied text here; None: outside of such a text."""
        return self._marks[state]

    def complete(self, state: int) -> bool:
        return self._distance[state] == 0

    def next_bytes(self, state: int) -> list[int]:
        return [int(byte) for byte in np.flatnonzero(self._row(state))]

    def follow(self, state: int, text: bytes) -> int:
        for byte in text:
            state = int(self._row(state)[byte])
        return state

    def after_tokens(self, state: int, vocabulary: ByteVocabulary) -> Ints:
        """Return the state after each token of the vocabulary, [vocab]; 0 where the token is not allowed."""
        after = np.zeros(vocabulary.size, np.int32)
        tokens = vocabulary.spoken
        states = np.full(len(tokens), state, np.int32)
        for index in range(vocabulary.longest):
            for reached in np.unique(states):
                self._row(int(reached))
            states = self._table[states, vocabulary.byte(tokens, index)]
            ended = vocabulary.lengths[tokens] == index + 1
            after[tokens[ended]] = states[ended]
            going_on = (states > 0) & ~ended
            tokens, states = tokens[going_on], states[going_on]
            if not len(tokens):
                break
        return after

    def _row(self, state: int) -> Ints:
        if not self._known[state]:
            targets: list[set[int]] = [set() for _ in range(256)]
            for node in self._nodes[state]:
                for low, high, target in self._edges[node]:
                    for byte in range(low, high + 1):
                        targets[byte].add(target)
            numbers = [self._number(target) if target else 0 for target in targets]  # may enlarge the table
            self._table[state] = numbers
            self._known[state] = True
        row: Ints = self._table[state]
        return row

    def _number(self, nodes: set[int]) -> int:
        closed, waiting = set(nodes), list(nodes)
        while waiting:
            for node in self._skips[waiting.pop()]:
                if node not in closed:
                    closed.add(node)
                    waiting.append(node)
        key = frozenset(closed)
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(key)
            self._known.append(False)
            self._distance.append(min(self._distances[node] for node in key))
            self._marks.append(next((self._copying[node] for node in key if node in self._copying), None))
            if len(self._nodes) > len(self._table):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        return self._numbers[key]

    def _all_distances(self) -> list[int]:
        """Return each node's distance from the end."""
        before: list[list[tuple[int, int]]] = [[] for _ in self._edges]  # of each node: (node before, bytes)
        for node, edges in enumerate(self._edges):
            for _, _, target in edges:
                before[target].append((node, 1))
            for target in self._skips[node]:
                before[target].append((node, 0))
        distances = [NEVER] * len(self._edges)
        distances[self._end] = 0
        waiting = deque([self._end])
        while waiting:
            node = waiting.popleft()
            for earlier, cost in before[node]:
                if distances[node] + cost < distances[earlier]:
                    distances[earlier] = distances[node] + cost
                    (waiting.append if cost else waiting.appendleft)(earlier)
        return distances


class ByteVocabulary:
    """The bytes of a tokenizer's tokens, as arrays."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.size = len(pieces)
        self.lengths = np.array([len(piece) for piece in pieces], np.int64)
        self.longest = int(self.lengths.max(initial=0))
        self.spoken = np.flatnonzero(self.lengths)  # tokens with a text
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self._bytes = np.frombuffer(b"".join(pieces), np.uint8)
        self._sorted = sorted(self.spoken.tolist(), key=lambda token: pieces[token])

    def byte(self, tokens: npt.NDArray[np.int64], index: int) -> npt.NDArray[np.uint8]:
        """Return byte `index` of each token; each must be longer."""
        bytes_here: npt.NDArray[np.uint8] = self._bytes[self._starts[tokens] + index]
        return bytes_here

    def longer_than(self, text: bytes) -> list[int]:
        """Return the tokens that begin with this text and go on."""
        first = bisect_right(self._sorted, text, key=lambda token: self.pieces[token])
        end = bisect_right(self._sorted, text, first, key=lambda token: self.pieces[token][: len(text)])
        return self._sorted[first:end]
