"""The words that an answer copies from its prompt.

prompt     rain in| Col|fax|,| Senegal
answer     {"city": "|Col|fax|", "         a word is spelled without the space before it
skeleton   {"city": "|COPY|", "            each run of copied tokens is one mark
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

COPY = 0xFFFFFFFE  # stands for a run of copied tokens
START = 0xFFFFFFFF  # precedes an answer's first token
LONGEST_SKELETON = 24  # tokens that are kept
NEWEST = 512  # prompt tokens that words are taken from
SPACE = b" "


class Word(NamedTuple):
    tokens: tuple[int, ...]  # without the space before it
    behind: int  # index of the prompt's token after the word


class Words:
    """Cuts prompts into words."""

    def __init__(self, token_bytes: Callable[[int], bytes], encode: Callable[[str], Sequence[int]]) -> None:
        self._token_bytes, self._encode = token_bytes, encode
        self._spelled: dict[bytes, tuple[int, ...]] = {}

    def of(self, prompt: Sequence[int]) -> dict[int, Word]:
        """Return the words by the index of their first token. A token without bytes belongs to no word."""
        begin = max(0, len(prompt) - NEWEST)
        pieces = [self._token_bytes(token) for token in prompt[begin:]]
        starts = [
            at
            for at, piece in enumerate(pieces)
            if piece and (piece.startswith(SPACE) or not at or not pieces[at - 1])
        ]
        words = {}
        for start in starts:
            stop = start + 1
            while stop < len(pieces) and pieces[stop] and not pieces[stop].startswith(SPACE):
                stop += 1
            if spelled := self._spell(b"".join(pieces[start:stop]).lstrip(SPACE)):
                words[begin + start] = Word(spelled, begin + stop)
        return words

    def is_text(self, token: int) -> bool:
        return bool(self._token_bytes(token))

    def _spell(self, word: bytes) -> tuple[int, ...]:
        spelling = self._spelled.get(word)
        if spelling is None:
            try:
                spelling = tuple(self._encode(word.decode())) if word else ()
            except UnicodeDecodeError:
                spelling = ()
            if len(self._spelled) >= 1 << 16:
                self._spelled.clear()
            self._spelled[word] = spelling
        return spelling


class Reading(NamedTuple):
    """What precedes the next token of an answer."""

    skeleton: tuple[int, ...] = (START,)  # the newest tokens; each copied run is one COPY
    rest: tuple[int, ...] = ()  # tokens to come of the word that is being copied
    place: int = -1  # index of the prompt's token after that word; -1: nothing is being copied
    after: int = 0  # index of the prompt's token after the newest copied word


class CopyReader:
    """Reads an answer token by token and finds what it copies.

    A run begins where `may_begin(skeleton)` holds, with the first token of a word. It continues with the
    rest of the word, then with the prompt's next tokens.
    """

    def __init__(
        self, prompt: Sequence[int], words: Words | None, may_begin: Callable[[Sequence[int]], bool]
    ) -> None:
        self.prompt, self._words, self._may_begin = prompt, words, may_begin

    @cached_property
    def words(self) -> Mapping[int, Word]:
        return {} if self._words is None else self._words.of(self.prompt)

    @cached_property
    def _by_first(self) -> dict[int, list[int]]:
        places: dict[int, list[int]] = {}
        for position, word in self.words.items():
            places.setdefault(word.tokens[0], []).append(position)
        return places

    def may_begin(self, reading: Reading) -> bool:
        return self._words is not None and self._may_begin(reading.skeleton)

    def expected(self, reading: Reading) -> int | None:
        """Return the token that would continue the copied run; None if there is none."""
        if reading.rest:
            return reading.rest[0]
        if not 0 <= reading.place < len(self.prompt):
            return None
        token = self.prompt[reading.place]
        return token if self._words is not None and self._words.is_text(token) else None

    def read(self, reading: Reading, token: int) -> Reading:
        """Return the reading after one more token of the answer."""
        skeleton, rest, position, after = reading
        if token == self.expected(reading):
            if rest:
                return Reading(skeleton, rest[1:], position, after)
            return Reading(skeleton, (), position + 1, position + 1)
        if self.may_begin(reading) and token in self._by_first:
            # of equal words the next one behind the newest copy, else the nearest before it
            begin = min(self._by_first[token], key=lambda at: (at < after, abs(at - after)))
            spelled, behind = self.words[begin]
            return Reading(_longer(skeleton, COPY), spelled[1:], behind, behind)
        return Reading(_longer(skeleton, token), (), -1, after)


def _longer(skeleton: tuple[int, ...], token: int) -> tuple[int, ...]:
    return (*skeleton[-LONGEST_SKELETON + 1 :], token)
