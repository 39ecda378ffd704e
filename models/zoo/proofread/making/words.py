"""English words, how often they are used, and how people misspell them.

The frequencies are symspellpy's, the misspellings codespell's. Only making the data needs these packages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from hamburger_edge.models.zoo.proofread.making.lists import LISTS

COMMON = 1_000_000  # uses in the frequency list; a rarer word is never misspelled by a slip of a finger
LISTED = 40_000  # and a right word that codespell misspells is at least as frequent as that
NAMED = 500  # uses below which a capital letter alone decides that a word is a name

CLOSED_NAMES = frozenset(LISTS["known names"])  # people often write them small


@dataclass(frozen=True)
class Words:
    counts: dict[str, int]  # lower-case word -> uses
    names: frozenset[str]  # lower-case forms of words that are only ever written with a capital letter
    misspelled: dict[str, tuple[str, ...]]  # right -> wrong, of the half that may be learned from
    reserved: dict[str, tuple[str, ...]]  # the same of the half that is for judging
    wrong: frozenset[str]  # all misspellings of both halves
    kept_back: frozenset[str]  # those of the half that is for judging

    def common(self, word: str) -> bool:
        return self.counts.get(word, 0) >= COMMON and word not in self.names

    def known(self, word: str) -> bool:
        return word in self.counts and word not in self.wrong


def even(word: str) -> bool:
    """Whether a misspelling may be learned from; the others are for judging."""
    return hashlib.sha1(word.encode()).digest()[-1] % 2 == 0


def load_words(wordnet: Path) -> Words:
    counts: dict[str, int] = {}
    listed = files("symspellpy") / "frequency_dictionary_en_82_765.txt"
    for line in listed.read_text("utf-8-sig").splitlines():
        word, count = line.split()
        counts[word] = int(count)
    small, large = wordnet_words(wordnet)
    for word in small:
        counts.setdefault(word, 1)
    for contraction in CONTRACTIONS:
        counts[contraction] = COMMON
    pairs: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    wrongs = set()
    for line in (files("codespell_lib") / "data" / "dictionary.txt").read_text("utf-8").splitlines():
        wrong, _, right = line.partition("->")
        wrongs.add(wrong.lower())
        if "," in right or not re.fullmatch(r"[a-z']+", wrong) or not re.fullmatch(r"[a-z' ]+", right):
            continue
        if wrong in counts or any(counts.get(word, 0) < LISTED for word in right.split(" ")):
            continue
        pairs[even(wrong)].setdefault(right, []).append(wrong)
    learned, reserved = (
        {right: tuple(wrong) for right, wrong in pairs[side].items()} for side in (True, False)
    )
    kept_back = frozenset(wrong for wrong in wrongs if not even(wrong) and wrong not in counts)
    names = frozenset(w for w in large - small if counts.get(w, 0) < 2_000_000_000) | CLOSED_NAMES
    return Words(counts, names, learned, reserved, frozenset(wrongs - counts.keys()), kept_back)


def wordnet_words(folder: Path) -> tuple[set[str], set[str]]:
    """Lower-case forms of the single words that WordNet writes small, and of those that it writes large."""
    small: set[str] = set()
    large: set[str] = set()
    for entry in wordnet(folder):
        for lemma in entry.lemmas:
            for word in re.findall(r"[A-Za-z]+", lemma.split("(")[0]):
                (small if word.islower() else large).add(word.lower())
    return small, large


class Entry(NamedTuple):
    """Words of one meaning."""

    part: str  # of speech
    file: str  # number of WordNet's file of such meanings
    lemmas: list[str]
    gloss: str  # definition and examples


def wordnet(folder: Path, parts: Sequence[str] = ("noun", "verb", "adj", "adv")) -> Iterator[Entry]:
    for part in parts:
        for line in (folder / f"data.{part}").read_text("latin-1").splitlines():
            if not line.startswith("  "):
                facts, _, gloss = line.partition(" | ")
                fields = facts.split(" ")
                yield Entry(part, fields[1], fields[4 : 4 + 2 * int(fields[3], 16) : 2], gloss.strip())


CONTRACTIONS = LISTS["contractions"]
