"""Mistakes that people make on phones and keyboards, put into right texts.

How many a text gets: none in a fifth of the texts, one or two in half, three to five in three tenths (at most
one for every two and a half words). Which: drawn by the weights of `mistake_kinds.KINDS` among the kinds for
which the text has room.

Some kinds are kept for the dev set, so that it shows what a model makes of mistakes that it never saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from hamburger_edge.tasks.proofreading.mistake_kinds import KINDS, SEEN, UNSEEN, Sites

CLEAN, LIGHT, HEAVY = 0.2, 0.5, 0.3  # shares of the texts
LIGHT_COUNTS, HEAVY_COUNTS = (1, 2), (3, 5)
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
    """The same for the same (seed, index), whatever else was asked before."""

    def __init__(self, counts: Mapping[str, int], seed: int):
        """`counts`: lower-case words, and how often they are used; 0 for words that only must not be made."""
        self.counts, self.seed = counts, seed
        self.undoable = lru_cache(maxsize=1 << 16)(self._undoable)

    def apply(self, text: str, index: int) -> Noisy:
        """A text with none to five mistakes of the kinds that training sees."""
        draw = Random(f"{self.seed}/{index}")
        level = draw.random()
        if level < CLEAN:
            return Noisy(text, ())
        count = draw.randint(*(LIGHT_COUNTS if level < CLEAN + LIGHT else HEAVY_COUNTS))
        return self._with(text, [SEEN] * count, draw)

    def apply_unseen(self, text: str, index: int) -> Noisy:
        """A text with one or two mistakes of kinds that training never sees, maybe one of the others."""
        draw = Random(f"{self.seed}/unseen/{index}")
        wanted: list[Sequence[str]] = [UNSEEN] * draw.randint(1, 2)
        return self._with(text, wanted + [SEEN] * draw.randint(0, 1), draw)

    def _with(self, text: str, wanted: Iterable[Sequence[str]], draw: Random) -> Noisy:
        sites = Sites(tuple(text.split(" ")), draw, self.undoable)
        taken: dict[int, Mistake] = {}  # word -> the mistake that takes it in
        most = max(1, int(len(sites.words) / WORDS_A_MISTAKE))
        for kinds in list(wanted)[:most]:
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
        """Whether a spelling is no word of its own, and `right` the likeliest word one slip away from it
        (where a word was meant at all: "" for parts of words and words in one)."""
        if wrong in self.counts or not wrong:
            return False
        if not right:
            return len(wrong) > 1 or wrong not in "ai"
        others = sum(self.counts.get(word, 0) for word in one_slip_away(wrong) if word != right)
        return self.counts.get(right, 0) >= others


def _drawn(draw: Random, kinds: Sequence[str]) -> Iterator[str]:
    """Kinds by their weights, without coming back to one."""
    left = {kind: KINDS[kind].weight for kind in kinds}
    while left:
        [kind] = draw.choices(list(left), weights=list(left.values()))
        del left[kind]
        yield kind


def _place(kind: str, sites: Sites, taken: Mapping[int, Mistake]) -> Mistake | None:
    """A mistake of this kind at one of the words that have room for it."""
    for i in sites.draw.sample(range(len(sites.words)), len(sites.words)):
        if i not in taken and (change := KINDS[kind].make(sites, i)):
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
