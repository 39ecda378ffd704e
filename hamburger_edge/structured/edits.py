"""A constraint on answers that correct their prompt: names and numbers stay unchanged with any weights.

Words that look like names, numbers or codes are copied unchanged. Every other word of the answer is a piece
of the prompt within an edit distance that grows with the word's length. The next word begins where that
piece ended.

    prompt   Ann, Bill, Cate, and Dale saw teh dogs
    answer   Ann, Bill,        -> " and" would skip "Cate" and is refused; " Cate" is allowed

The edit costs are a table in docs/spec/loop.md.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from hamburger_edge.support.constraint import Constraint

Row = npt.NDArray[np.int64]  # [bytes of the prompt + 1] cost of aligning the newest word up to each byte
Bytes = npt.NDArray[np.uint8]

NEVER = 1 << 30  # a cost above every budget
LETTER, CAPITAL, CASE, OTHER, JOIN = 2, 4, 1, 1, 3
FIRST, MORE, EACH = 3, 2, 3  # a word's budget: FIRST + MORE * (letters // EACH)
INSIDE = 1  # budget of a word that ends inside a word of the prompt ("a" in "alot")

_PIECE = re.compile(r"[\w@#$£€%&+/\\.'’:*=~^-]+")
_SENTENCE = re.compile(r".+?(?:(?<=[a-z0-9])\.(?=[A-Z][a-z])|$)")  # "end.The" holds two words
_BEGINS = re.compile(r"(?:^|[.!?:\n][\"'“‘()\s]*|[\"“‘\n]\s*)\Z")


def kept_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the words that look like names, numbers or codes."""
    for piece in _PIECE.finditer(text):
        for part in _SENTENCE.finditer(piece[0]):
            word = part[0].strip(".':’-")
            start = piece.start() + part.start() + part[0].find(word)
            if word and _is_kept(word, begins=bool(_BEGINS.search(text[:start]))):
                yield start, start + len(word)


def _is_kept(word: str, *, begins: bool) -> bool:
    if re.search(r"[\d@/\\_]|\w\.\w", word):
        return True
    if re.fullmatch(r"I(?:['’]\w+)?", word):
        return False
    capitals = [letter.isupper() for letter in word]
    if begins and capitals[:2] == [True, True] and word[2:3].islower() and not any(capitals[2:]):
        return False  # a typing error, as "THe"
    return any(capitals[1:] if begins else capitals)


def _is_letter(byte: int) -> bool:
    return byte >= 0x80 or chr(byte).isalnum() or chr(byte) == "'"


_LETTERS = np.array([_is_letter(byte) for byte in range(256)])
_CAPITALS = np.array([65 <= byte <= 90 for byte in range(256)])
_DIGITS = np.array([48 <= byte <= 57 for byte in range(256)])
_SMALL = np.arange(256) + 32 * _CAPITALS
_APOSTROPHE = ord("'")


class _Reached:
    """State after a token: the cost of aligning the newest word up to each byte of the prompt."""

    __slots__ = ("before", "following", "last", "letters", "row")

    def __init__(self, row: Row, before: Row, last: int, letters: int) -> None:
        self.row, self.before, self.last, self.letters = row, before, last, letters
        self.following: dict[int, _Reached | None] = {}  # token -> the next state; None: the token is refused


class Edits(Constraint):
    """The alignment of one answer with its prompt. Follows the sampler's choices and rewinds."""

    def __init__(self, token_bytes: Callable[[int], bytes], eos_ids: Sequence[int]) -> None:
        self._token_bytes, self._eos_ids = token_bytes, frozenset(eos_ids)
        self._tokens = 0  # of the text to correct
        self._way: list[_Reached | None] = []  # after each token; None: after a refused token of a draft

    def begin(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> None:
        """Start an answer. The text to correct is the prompt's last run of tokens with non-empty text."""
        texts = [self._token_bytes(token) for token in prompt]
        while texts and not texts[-1]:
            texts.pop()
        first = next((index for index in range(len(texts), 0, -1) if not texts[index - 1]), 0)
        self._tokens = len(texts) - first
        self._read(b"".join(texts[first:]))
        row = np.full(len(self._text) + 1, NEVER)
        row[0] = 0
        self._way = [_Reached(self._skipping(row), np.full_like(row, NEVER), 0, 0)]
        for token in answer:
            self.consume(token)

    @property
    def fallback(self) -> str:
        """The text to correct: it is better than an unsure correction."""
        return self._text.tobytes().decode(errors="replace")

    @property
    def max_tokens(self) -> int:
        """The default length of an answer: within its budget, a word with its blank at most doubles."""
        return 2 * self._tokens + 8

    def allows(self, token: int) -> bool:
        """Whether this token may come next."""
        reached = self._way[-1]
        if reached is None:
            return False
        if token in self._eos_ids:
            return bool(reached.row[-1] <= self._budgets(reached.letters)[-1])
        return self._following(reached, token) is not None

    def consume(self, token: int) -> None:
        reached = self._way[-1]
        ends = token in self._eos_ids
        self._way.append(reached if ends or reached is None else self._following(reached, token))

    def rewind(self, tokens: int) -> None:
        if tokens:
            del self._way[-tokens:]

    def _following(self, reached: _Reached, token: int) -> _Reached | None:
        if token not in reached.following:
            reached.following[token] = self._spelled(reached, self._token_bytes(token))
        return reached.following[token]

    def _spelled(self, reached: _Reached, text: bytes) -> _Reached | None:
        if not text:
            return None
        for byte in text:
            reached = self._step(reached, byte)
        return reached if (reached.row <= self._budgets(reached.letters)).any() else None

    def _budgets(self, letters: int) -> Row:
        """Return each place's budget for a word of so many letters.

        The rest of the prompt's word counts, too. A shorter word of the prompt counts alone, with EACH or
        more.
        """
        limits = np.where(self._whole > 0, np.maximum(self._whole, EACH), letters)
        return FIRST + MORE * (np.minimum(letters + self._rest, limits) // EACH)

    def _read(self, text: bytes) -> None:
        """Compute the edit costs at every byte of the prompt's text."""
        self._text: Bytes = np.frombuffer(text, np.uint8)
        size = len(text)
        self._kept, inside, edge = np.zeros(size, bool), np.zeros(size + 1, bool), np.zeros(size + 1, bool)
        try:
            decoded = text.decode()
        except UnicodeDecodeError:
            decoded = ""
        spans = [tuple(len(decoded[:index].encode()) for index in word) for word in kept_words(decoded)]
        for start, stop in spans:
            self._kept[start:stop], inside[start + 1 : stop], edge[[start, stop]] = True, True, True
        self._letters = letters = _LETTERS[self._text] & (self._text != _APOSTROPHE)
        price = np.where(letters, np.where(_CAPITALS[self._text], CAPITAL, LETTER), OTHER)
        price[self._kept] = NEVER
        self._price = price.copy()  # [size] cost of replacing a byte
        blank = self._text == ord(" ")
        price[1:-1][letters[:-2] & blank[1:-1] & letters[2:]] = JOIN  # two words become one
        for start, stop in spans:  # a letter next to a kept word would change it
            price[max(0, start - 1) : start], price[stop : stop + 1] = NEVER, NEVER
        self._replaced: dict[int, Row] = {}
        self._swapped: dict[tuple[int, int], Row] = {}
        self._left_out = price
        self._skipped = np.concatenate([[0], np.cumsum(price)])  # [size + 1] cost of skipping the first bytes
        self._letter_added = np.where(inside | edge, NEVER, LETTER)  # [size + 1] cost of an insertion
        self._other_added = np.where(inside, NEVER, OTHER)
        self._rest = np.zeros(size + 1, np.int64)  # letters from here to the end of the word
        for index in range(size - 1, -1, -1):
            self._rest[index] = self._rest[index + 1] + 1 if _LETTERS[text[index]] else 0
        self._whole = self._rest.copy()  # letters of the word that holds this place, or ends here
        for index in range(size):
            if _LETTERS[text[index]]:
                self._whole[index + 1] = self._whole[index]
        words = [(word.start(), word.end()) for word in re.finditer(rb"[A-Za-z0-9'\x80-\xff]+", text)]
        self._repeated = [  # (end of a word, end of its repetition)
            (one[1], two[1])
            for one, two in itertools.pairwise(words)
            if text[slice(*one)].lower() == text[slice(*two)].lower()
            and text[one[1] : two[0]].isspace()
            and not self._kept[slice(*two)].any()
        ]

    def _skipping(self, row: Row) -> Row:
        """Lower the costs by skipped bytes of the prompt and by skipped repetitions of a word."""
        for one, two in self._repeated:
            row[two] = min(row[two], row[one])
        least: Row = np.minimum.accumulate(row - self._skipped) + self._skipped
        return least

    def _step(self, reached: _Reached, byte: int) -> _Reached:
        row, before, letters = reached.row, reached.before, reached.letters
        letter, apostrophe = bool(_LETTERS[byte]), byte == _APOSTROPHE
        if letters and not letter:  # a word ends: the next one may begin at each of its possible ends
            paid = self._budgets(letters)
            paid = np.where(self._rest > 0, np.minimum(INSIDE, paid), paid)
            row = self._skipping(np.where(row <= paid, 0, NEVER))
            letters = 0
        if byte not in self._replaced:
            self._replaced[byte] = self._replacing(byte)
        new = np.empty_like(row)
        new[0], new[1:] = NEVER, row[:-1] + self._replaced[byte]
        if apostrophe:  # allowed in a name, too
            new = np.minimum(new, row + OTHER)
        elif not _DIGITS[byte]:
            new = np.minimum(new, row + (self._letter_added if letter else self._other_added))
        if letters and letter and len(new) > 2:
            pair = reached.last, byte
            if pair not in self._swapped:
                self._swapped[pair] = self._swapping(*pair)
            new[2:] = np.minimum(new[2:], before[:-2] + self._swapped[pair])
        return _Reached(self._skipping(np.minimum(new, NEVER)), row, byte, letters + letter)

    def _replacing(self, byte: int) -> Row:
        """Return the cost [size] of this byte instead of each byte of the prompt."""
        if _DIGITS[byte]:
            return np.where(self._text == byte, 0, NEVER)
        letter = _LETTERS[byte] and byte != _APOSTROPHE
        mark = self._left_out if byte == _APOSTROPHE else self._price  # "'" joins its neighbours
        price = np.where(self._letters == letter, mark, NEVER)
        alike = (_SMALL[self._text] == _SMALL[byte]) & ~self._kept
        return np.where(self._text == byte, 0, np.where(alike, CASE, price))

    def _swapping(self, last: int, byte: int) -> Row:
        """Return the cost [size - 1] of these two bytes as a transposition of two prompt bytes."""
        one, two = self._text[:-1], self._text[1:]
        swapped = (_SMALL[one] == _SMALL[byte]) & (_SMALL[two] == _SMALL[last])
        same = (one == byte) & (two == last)
        price = np.where(same, LETTER, LETTER + CASE)
        return np.where(swapped & ~self._kept[:-1] & ~self._kept[1:], price, NEVER)
