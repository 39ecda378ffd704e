"""Draw a sentence from a template, in pieces, so that the text of each slot's value stays known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hassil.expression import (
    Alternative,
    Expression,
    Group,
    ListReference,
    Permutation,
    RuleReference,
    TextChunk,
)
from hassil.intents import RangeSlotList, TextSlotList

from hamburger_edge.models.zoo.home_commands.making.templates import Template, Templates
from hamburger_edge.models.zoo.home_commands.making.vocabulary import (
    CommandVocabulary,
    Value,
    spoken_number,
    temperature,
)

ARTICLE = re.compile(r"\b(the|my|our|that) $")
PROPER = re.compile(r"[A-Z][a-z]|mom'|dad'")  # a name that takes no article: Anna's lamp, Dusty
OPTIONAL = 0.45  # share of optional words that are spoken
COMMANDS = ("HassTurnOn", "HassTurnOff", "HassLightSet", "HassMediaPause", "HassVacuumStart", "HassSetVolume")


@dataclass(frozen=True)
class SentencePart:
    """A part of a sentence: words, or the text of a slot's value."""

    text: str
    slot: str = ""
    value: Any = None  # None: the text is the value

    @property
    def copied(self) -> bool:
        return bool(self.slot) and self.value is None


class SentenceSampler:
    def __init__(self, templates: Templates, vocabulary: CommandVocabulary):
        self.templates, self.vocabulary = templates, vocabulary

    def pieces(self, template: Template, draw: Random) -> list[SentencePart]:
        """Return the pieces of a sentence, with single spaces. A device is in one room at most."""
        while True:
            pieces = tidied(list(self.expand(template.sentence.expression, template, draw)))
            texts = {piece.slot: piece.text for piece in pieces}
            if not ("area" in texts and self.vocabulary.starts_with_room(texts.get("name", ""))):
                return pieces

    def expand(self, expression: Expression, template: Template, draw: Random) -> Iterator[SentencePart]:
        match expression:
            case TextChunk():
                yield SentencePart(expression.original_text)
            case Alternative():
                spoken = [item for item in expression.items if not blank(item)]
                if spoken and (len(spoken) == len(expression.items) or draw.random() < OPTIONAL):
                    yield from self.expand(draw.choice(spoken), template, draw)
            case Permutation():
                for item in draw.sample(expression.items, len(expression.items)):
                    yield SentencePart(" ")
                    yield from self.expand(item, template, draw)
                yield SentencePart(" ")
            case Group():
                for item in expression.items:
                    yield from self.expand(item, template, draw)
            case RuleReference():
                yield from self.expand(self.templates.rules[expression.rule_name].expression, template, draw)
            case ListReference():
                value = self.value(expression.list_name, template, draw)
                yield SentencePart(value.text, expression.slot_name, value.value)

    def value(self, name: str, template: Template, draw: Random) -> Value:
        if name in ("timer_command", "command"):
            return Value(self.command(draw))
        if name == "name":
            return self.vocabulary.name(template.domains, draw)
        if name in self.vocabulary:
            return self.vocabulary.draw(name, draw)
        values = self.templates.lists[name]
        if isinstance(values, TextSlotList):
            chosen = draw.choice(values.values)
            text = "".join(piece.text for piece in self.expand(chosen.text_in, template, draw))
            return Value(text, chosen.value_out)
        assert isinstance(values, RangeSlotList), name
        usual = draw.random() < 0.85 and name == "timer_hours"
        number = draw.randint(1, 12) if usual else number_in(values, draw)
        out = number if values.multiplier is None else int(number * values.multiplier)
        return Value(spoken_number(number, draw), out)

    def command(self, draw: Random) -> str:
        """A command that a timer carries out later."""
        template = draw.choice(self.templates.package[draw.choice(COMMANDS)])
        return "".join(piece.text for piece in self.pieces(template, draw))


def number_in(values: RangeSlotList, draw: Random) -> float:
    if values.fraction_type is not None:
        return temperature(draw) + draw.choice((0, 0, 0, 0, 0, 0, 0.5))
    numbers = range(values.start, values.stop + 1, values.step)
    if values.stop > 1000:  # of light: most lamps have 2,000 to 6,500 kelvin
        numbers = draw.choice((numbers, range(2000, 6501, values.step)))
    usual = [number for number in numbers if number % (5 * values.step) == 0]
    return draw.choice(usual if usual and draw.random() < 0.6 else numbers)


def blank(expression: Expression) -> bool:
    return isinstance(expression, TextChunk) and not expression.text.strip()


def tidied(pieces: list[SentencePart]) -> list[SentencePart]:
    """Join words between values, and leave one space where there were several."""
    joined: list[SentencePart] = []
    for piece in pieces:
        if joined and not piece.slot and not joined[-1].slot:
            joined[-1] = SentencePart(joined[-1].text + piece.text)
        else:
            joined.append(piece)
    joined = [piece if piece.slot else SentencePart(re.sub(r"\s+", " ", piece.text)) for piece in joined]
    for index, piece in enumerate(joined[1:]):
        if piece.copied and PROPER.match(piece.text) and not joined[index].slot:
            joined[index] = SentencePart(ARTICLE.sub("", joined[index].text))
    if joined and not joined[0].slot:
        joined[0] = replace(joined[0], text=joined[0].text.lstrip())
    if joined and not joined[-1].slot:
        joined[-1] = replace(joined[-1], text=joined[-1].text.rstrip())
    return [piece for piece in joined if piece.text]
