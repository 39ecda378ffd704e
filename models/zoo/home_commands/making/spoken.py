"""Say a command as people do: politeness, fillers, slips of the keyboard, letter case and end marks.

Words around the values change; a value is only written in another case, since answers copy it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from hamburger_edge.models.zoo.home_commands.making.sampler import SentencePart
from hamburger_edge.models.zoo.home_commands.making.vocabulary import WORDS, read_lists

LISTS = {
    name: [value.text for value in values] for name, values in read_lists(WORDS.read_text("utf-8")).items()
}

NEIGHBOURS = dict(zip("qwertyuiopasdfghjklzxcvbnm", "wqwrtyuioposadfghjkxzxcvbn", strict=True))
FREE_TEXT = ("message", "conversation_command", "search_query", "item")


def dropped(word: str, place: int, draw: Random) -> str:
    return word[:place] + word[place + 1 :]


def doubled(word: str, place: int, draw: Random) -> str:
    return word[:place] + word[place] + word[place:]


def swapped(word: str, place: int, draw: Random) -> str:
    return word[: place - 1] + word[place] + word[place - 1] + word[place + 1 :]


def neighbour(word: str, place: int, draw: Random) -> str:
    return word[:place] + NEIGHBOURS.get(word[place], word[place]) + word[place + 1 :]


SLIPS: tuple[Callable[[str, int, Random], str], ...] = (dropped, doubled, swapped, neighbour)


def spoken(pieces: list[SentencePart], draw: Random) -> list[SentencePart]:
    """Return the pieces of one command with politeness and hesitation."""
    text = "".join(piece.text for piece in pieces)
    before = []
    if draw.random() < 0.1:
        before.append(draw.choice(LISTS["reason"]) + draw.choice((", ", " ", " so ", ". ")))
    if draw.random() < 0.16:
        before.append(draw.choice(LISTS["filler"]) + draw.choice((" ", " ", ", ")))
    if text.split(" ")[0].lower() in LISTS["verb"] and draw.random() < 0.3:
        before.append(draw.choice(LISTS["asked"]) + " ")
    pieces = [*(SentencePart(words) for words in before), *pieces]
    if pieces[-1].slot not in FREE_TEXT:
        if draw.random() < 0.14:
            pieces.append(SentencePart(draw.choice((" ", " ", " ", ", ")) + draw.choice(LISTS["thanks"])))
        elif draw.random() < 0.06:
            joint = draw.choice((", ", " ", " because ", ". "))
            pieces.append(SentencePart(joint + draw.choice(LISTS["reason"])))
    if draw.random() < 0.05:
        pieces = hesitant(pieces, draw)
    return pieces


def hesitant(pieces: list[SentencePart], draw: Random) -> list[SentencePart]:
    """Insert a hesitation between two words outside the values."""
    places = [index for index, piece in enumerate(pieces) if not piece.slot and " " in piece.text.strip()]
    if not places:
        return pieces
    index = draw.choice(places)
    words = pieces[index].text.split(" ")
    words.insert(draw.randrange(1, len(words)), draw.choice(LISTS["hesitation"]))
    return [*pieces[:index], replace(pieces[index], text=" ".join(words)), *pieces[index + 1 :]]


def mistyped(pieces: list[SentencePart], draw: Random) -> list[SentencePart]:
    """Misspell one word of four letters or more outside the values, if there is one."""
    words = [
        (index, match)
        for index, piece in enumerate(pieces)
        if not piece.slot
        for match in re.finditer(r"[a-z]{4,}", piece.text)
    ]
    if not words:
        return pieces
    index, match = draw.choice(words)
    wrong = draw.choice(SLIPS)(match[0], draw.randrange(1, len(match[0])), draw)
    text = pieces[index].text
    text = text[: match.start()] + wrong + text[match.end() :]
    return [*pieces[:index], replace(pieces[index], text=text), *pieces[index + 1 :]]


def written(pieces: list[SentencePart], draw: Random, question: bool) -> list[SentencePart]:
    """Write a whole prompt: letter case, apostrophes, slips and the end mark."""
    if draw.random() < 0.09:
        pieces = mistyped(pieces, draw)
    if draw.random() < 0.12:
        pieces = [p if p.slot else replace(p, text=p.text.replace("'", "")) for p in pieces]
    form = draw.random()
    if form < 0.55:
        pieces = [replace(piece, text=piece.text.lower()) for piece in pieces]
    elif form < 0.58:
        pieces = [replace(piece, text=piece.text.upper()) for piece in pieces]
    elif form < 0.85:
        first = pieces[0].text
        pieces = [replace(pieces[0], text=first[:1].upper() + first[1:]), *pieces[1:]]
    mark = draw.choice(("", "", "", "?" if question else ".", "?" if question else ".", "!"))
    return [*pieces, SentencePart(mark)] if mark and form > 0.4 else pieces
