"""Mistakes that people make on phones and keyboards, put into right texts.

`CLEAN` of the texts get none. Of the others, half get one, a quarter two and a quarter three to five, at most
one for every two and a half words. Their kinds are drawn by the weights of `mistake_kinds.KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from hamburger_edge.models.zoo.proofread.making.mistake_kinds import HURRIED, KINDS, Sites
from hamburger_edge.models.zoo.proofread.making.words import Words

CLEAN = 0.44
HURRY = 0.05  # of the texts are typed without capitals, apostrophes and marks instead
COUNTS = (1, 1, 1, 1, 2, 2, 3, 5)  # mistakes of the others, equally often; 3 to 5 where it ends
WORDS_A_MISTAKE = 2.5


@dataclass(frozen=True)
class Mistake:
    kind: str
    index: int  # of the first word, in the right text
    count: int  # words of the right text that it takes in
    wrong: str  # what stands there instead


@dataclass(frozen=True)
class Noisy:
    text: str
    mistakes: tuple[Mistake, ...]


class NoiseModel:
    """Makes the same mistakes for the same seed."""

    def __init__(self, vocabulary: Words):
        self.vocabulary = vocabulary
        self.undoable = lru_cache(maxsize=1 << 18)(self._undoable)

    def apply(self, text: str, seed: str) -> Noisy:
        """A text with none to five mistakes."""
        draw = Random(seed)
        kind = draw.random()
        if kind < CLEAN:
            return Noisy(text, ())
        if kind < CLEAN + HURRY:
            return self.with_mistakes(text, 12, draw, HURRIED)
        count = draw.choice(COUNTS)
        return self.with_mistakes(text, draw.randint(3, 5) if count > 2 else count, draw)

    def with_mistakes(
        self, text: str, count: int, draw: Random, kinds: Sequence[str] = tuple(KINDS)
    ) -> Noisy:
        sites = Sites(tuple(text.split(" ")), draw, self.vocabulary, self.undoable)
        taken: dict[int, Mistake] = {}  # word -> the mistake that takes it in
        for _ in range(min(count, max(1, int(len(sites.words) / WORDS_A_MISTAKE)))):
            for kind in _drawn(draw, kinds):
                if mistake := _place(kind, sites, taken):
                    taken.update((mistake.index + i, mistake) for i in range(mistake.count))
                    break
        mistakes = sorted(set(taken.values()), key=lambda mistake: mistake.index)
        pieces: list[str] = []
        for i, word in enumerate(sites.words):
            if i not in taken:
                pieces.append(word)
            elif taken[i].index == i:
                pieces.append(taken[i].wrong)
        return Noisy(" ".join(pieces), tuple(mistakes))

    def _undoable(self, right: str, wrong: str) -> bool:
        """Whether a spelling is no word, is not kept for judging, and has `right` as the likeliest word one
        slip away. An empty `right` stands for part of a word, or for words run together."""
        known = self.vocabulary
        if not wrong or wrong in known.counts or wrong in known.kept_back:
            return False
        if not right:
            return len(wrong) > 1 or wrong not in "ai"
        others = max((known.counts.get(word, 0) for word in one_slip_away(wrong) if word != right), default=0)
        return known.counts.get(right, 0) >= others


def _drawn(draw: Random, kinds: Sequence[str]) -> Iterator[str]:
    """Kinds by their weights, without coming back to one."""
    left = {kind: KINDS[kind][0] for kind in kinds}
    while left:
        [kind] = draw.choices(list(left), weights=list(left.values()))
        del left[kind]
        yield kind


def _place(kind: str, sites: Sites, taken: Mapping[int, Mistake]) -> Mistake | None:
    """A mistake of this kind at one of the words that have room for it."""
    for i in sites.draw.sample(range(len(sites.words)), len(sites.words)):
        if i not in taken and (change := KINDS[kind][1](sites, i)):
            count, wrong = change
            if all(i + j not in taken for j in range(count)):
                return Mistake(kind, i, count, wrong)
    return None


def one_slip_away(word: str) -> set[str]:
    """Every string that one letter left out, put in, changed or swapped makes of it."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    dropped = {a + b[1:] for a, b in cuts if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    changed = {a + c + b[1:] for a, b in cuts if b for c in letters}
    put_in = {a + c + b for a, b in cuts for c in letters}
    return dropped | swapped | changed | put_in
