"""Draw a phrase from templates: (one|other), [optional], <rule>, and {slot} or {slot=list} for a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

PHRASES = Path(__file__).with_name("phrases.txt")
VALUES = Path(__file__).with_name("values.txt")
OPTIONAL = 0.5  # share of optional words that are spoken
TOKEN = re.compile(r"\{(?P<slot>[^{}]+)\}|<(?P<rule>\w+)>|(?P<mark>[()|\[\]])|(?P<words>[^{}<>()|\[\]]+)")


@dataclass(frozen=True)
class PhrasePart:
    """A part of a phrase: words, or the text of a slot."""

    text: str
    slot: str = ""


@dataclass(frozen=True)
class PhraseTemplates:
    rules: Mapping[str, str]
    names: Mapping[str, str]  # forms of made values, of some lists
    phrases: Mapping[str, Sequence[str]]  # of each intent

    def draw(self, phrase: str, values: Mapping[str, Sequence[str]], draw: Random) -> list[PhrasePart]:
        """Draw the pieces of a phrase. `values`: of each list, and of each slot without one."""
        return tidied(self._expand(phrase, values, draw))

    def _expand(self, text: str, values: Mapping[str, Sequence[str]], draw: Random) -> Iterator[PhrasePart]:
        for part, optional in alternatives(text):
            if isinstance(part, re.Match):
                if part["rule"]:
                    yield from self._expand(self.rules[part["rule"]], values, draw)
                elif part["slot"]:
                    slot, _, name = part["slot"].partition("=")
                    yield from spoken_value(slot, draw.choice(values[name or slot]))
                else:
                    yield PhrasePart(part["words"])
            elif not optional or draw.random() < OPTIONAL:
                yield from self._expand(draw.choice(part), values, draw)


def alternatives(text: str) -> Iterator[tuple[re.Match[str] | list[str], bool]]:
    """Yield the outermost parts of a template: a token, or a group's texts and whether it is optional."""
    depth, start, opened = 0, 0, ""
    choices: list[str] = []
    for token in TOKEN.finditer(text):
        mark = token["mark"]
        if mark in ("(", "["):
            depth += 1
            if depth == 1:
                opened, start, choices = mark, token.end(), []
        elif mark in (")", "]"):
            depth -= 1
            if depth == 0:
                yield [*choices, text[start : token.start()]], opened == "["
        elif mark == "|" and depth == 1:
            choices.append(text[start : token.start()])
            start = token.end()
        elif depth == 0:
            yield token, False


def spoken_value(slot: str, entry: str) -> Iterator[PhrasePart]:
    """Yield a value of a list; of "on friday=friday" only the part after the sign is the slot's."""
    spoken, equals, value = entry.partition("=")
    before, _, after = spoken.partition(value) if equals else ("", spoken, "")
    yield from (PhrasePart(before), PhrasePart(value if equals else spoken, slot), PhrasePart(after))


def tidied(pieces: Iterator[PhrasePart]) -> list[PhrasePart]:
    """Join neighbouring words and leave one space between them, none at the ends."""
    joined: list[PhrasePart] = []
    for piece in pieces:
        if joined and not piece.slot and not joined[-1].slot:
            piece = PhrasePart(joined.pop().text + piece.text)
        joined.append(piece)
    joined = [piece if piece.slot else PhrasePart(re.sub(r"\s+", " ", piece.text)) for piece in joined]
    for index, (piece, after) in enumerate(pairwise(joined)):
        if not piece.slot:
            article = "an" if after.text[:1].lower() in "aeiou" else "a"
            joined[index] = PhrasePart(re.sub(r"\b[Aa]n? $", f"{article} ", piece.text))
    if joined and not joined[0].slot:
        joined[0] = PhrasePart(joined[0].text.lstrip())
    if joined and not joined[-1].slot:
        joined[-1] = PhrasePart(joined[-1].text.rstrip())
    return [piece for piece in joined if piece.text]


def read_templates() -> PhraseTemplates:
    """Read phrases.txt: a heading, then its lines; under `rules` and `names` a line names what it defines."""
    defined: dict[str, dict[str, str]] = {"rules": {}, "names": {}}
    phrases: dict[str, list[str]] = {}
    heading = ""
    for line in PHRASES.read_text("utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            heading = line.strip()
        elif heading in defined:
            name, _, body = line.strip().partition(": ")
            defined[heading][name] = body
        else:
            phrases.setdefault(heading, []).append(line.strip())
    return PhraseTemplates(**defined, phrases=phrases)


def read_values() -> dict[str, list[str]]:
    """Read values.txt: the values of each list."""
    lists: dict[str, list[str]] = {}
    name = ""
    for line in VALUES.read_text("utf-8").splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            name = heading[1]
        elif line and not line.startswith("#"):
            lists.setdefault(name, []).extend(entry.strip() for entry in line.split(", "))
    return lists
