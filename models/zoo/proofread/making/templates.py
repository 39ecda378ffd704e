"""Sentences full of names and numbers, from patterns: a slot in braces is filled anew each time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from hamburger_edge.models.zoo.proofread.making import names as making
from hamburger_edge.models.zoo.proofread.making import numbers
from hamburger_edge.models.zoo.proofread.making.names import Names
from hamburger_edge.models.zoo.proofread.making.words import Words, wordnet

PATTERNS = tuple(
    line
    for line in (Path(__file__).parent / "patterns.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)
THINGS = {"food": "13", "thing": "06", "animal": "05", "plant": "20"}  # WordNet's files of nouns
UNCOUNTED = 2_000_000  # uses below which a noun is too rare to be counted


class Filler:
    """Fills patterns."""

    def __init__(self, names: Names, nouns: Mapping[str, Sequence[str]]):
        self.nouns = nouns
        self.makers: dict[str, Callable[[Random], str]] = {
            "first": lambda draw: making.made_up(draw) if draw.random() < 0.1 else draw.choice(names.first),
            "person": names.person,
            "last": lambda draw: draw.choice(names.last),
            "city": lambda draw: draw.choice(names.city),
            "company": lambda draw: draw.choice(names.company).removesuffix("."),
            "street": lambda draw: f"{draw.randint(1, 999)} {draw.choice(names.street)}",
            "place": lambda draw: f"{draw.choice(names.last)} {draw.choice(making.PLACES)}",
            "title": making.title,
            "product": making.product,
            "code": making.code,
            "web": lambda draw: making.web(draw, names),
            "n": numbers.number,
            "money": numbers.money,
            "time": numbers.time,
            "date": numbers.date,
            "phone": numbers.phone,
            "ordinal": lambda draw: numbers.ordinal(draw.randint(1, 31)),
            "percent": lambda draw: f"{draw.randint(1, 100)}%",
            "decimal": lambda draw: f"{draw.randint(0, 200)}.{draw.randint(0, 99)}",
            **{kind: self._noun(kind, "") for kind in THINGS},
            **{kind + "s": self._noun(kind, "s") for kind in THINGS},
        }

    def fill(self, pattern: str, draw: Random) -> str:
        """{first}, {n} and so on; [a|b|c] is one of several."""
        pattern = re.sub(r"\[([^\]]*)\]", lambda found: draw.choice(found[1].split("|")), pattern)
        text = re.sub(r"\{(\w+)\}", lambda found: self.makers[found[1]](draw), pattern)
        text = re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", text)
        return text.replace("..", ".")

    def _noun(self, kind: str, ending: str) -> Callable[[Random], str]:
        nouns = self.nouns[kind]
        return lambda draw: plural(draw.choice(nouns)) if ending else draw.choice(nouns)


def plural(noun: str) -> str:
    if re.search(r"(?:s|x|z|ch|sh)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else noun + "s"


def nouns(folder: Path, number: str, words: Words) -> list[str]:
    """Nouns whose plural is a word as well."""
    found = set()
    for entry in wordnet(folder, ["noun"]):
        if entry.file != number:
            continue
        noun = entry.lemmas[0]
        frequent = words.counts.get(noun, 0) >= UNCOUNTED and plural(noun) in words.counts
        if frequent and noun.isalpha() and noun.islower() and len(noun) > 3 and noun not in words.names:
            found.add(noun)
    return sorted(found)
