"""Plain data of the noise model: the keyboard, what people confuse and shorten."""

from __future__ import annotations

import csv
from pathlib import Path

from hamburger_edge.models.zoo.proofread.making.lists import LISTS

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """letter -> the keys around it; a row is half a key further right than the one above."""
    around: dict[str, set[str]] = {letter: set() for row in _ROWS for letter in row}
    for number, row in enumerate(_ROWS):
        for i, letter in enumerate(row):
            near = set(row[max(0, i - 1) : i + 2])
            if number + 1 < len(_ROWS):
                near |= set(_ROWS[number + 1][max(0, i - 1) : i + 1])
            for other in near - {letter}:
                around[letter].add(other)
                around[other].add(letter)
    return {letter: "".join(sorted(keys)) for letter, keys in around.items()}


NEIGHBOURS = _neighbours()

# (kind, right, wrong, only after one of, only before one of); empty: anywhere
with open(Path(__file__).parent / "confusions.csv", encoding="utf-8", newline="") as _file:
    CONFUSIONS = list(csv.reader(_file))[1:]

TEXT_SPEAK = {right: wrong for right, *wrong in map(str.split, LISTS["text speak"])}

# Without its apostrophe each of these is another word: only before words that decide what was meant.
_VERBS = "be have need see get make take go come meet call send bring find do try ask tell let give help show"
AMBIGUOUS_APOSTROPHES = {
    "i'll": _VERBS,
    "we'll": _VERBS,
    "he'll": "",
    "she'll": "",
    "she'd": "",
    "we'd": "",
    "i'd": "love like rather have be",
    "we're": "not all so very going having looking getting planning both also here",
    "it's": "",  # a kind of its own
}
