"""Values of the templates' lists: rooms, devices, items, spoken numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from hassil.numbers import get_rbnf_engine

WORDS = Path(__file__).with_name("vocabulary.txt")
DEVICES = ("light", "light", "switch", "switch", "fan", "media", "climate")  # {device_name}, by share
OPENINGS = ("cover", "cover", "cover", "valve")  # {opening_name}
NAME_LISTS = {  # of a domain, where its name is another one
    "media_player": "media",
    "lawn_mower": "mower",
    "input_boolean": "switch",
    "input_button": "button",
}
UNOWNED = ("scene", "script", "todo", "sensor", "vacuum", "mower", "person", "weather")


@dataclass(frozen=True)
class Value:
    """An entry of a list: the text as spoken, and the slot's value, None if that is the text."""

    text: str
    value: Any = None


def read_lists(text: str) -> dict[str, list[Value]]:
    lists: dict[str, list[Value]] = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            current = lists.setdefault(heading[1], [])
        elif line and not line.startswith("#"):
            for entry in line.split(", "):
                spoken, equals, value = entry.strip().partition("=")
                current.append(Value(spoken, as_value(value) if equals else None))
    return lists


def as_value(text: str) -> int | str:
    return int(text) if text.isdigit() else text


@cache
def words_of(number: float) -> str:
    return str(get_rbnf_engine("en").format_number(number).text_by_ruleset["spellout-cardinal"])


def spoken_number(number: float, draw: Random) -> str:
    """Return digits or words; an integer without a decimal point."""
    if draw.random() < 0.6:
        return str(number)
    text = words_of(number)
    return text.replace("-", " ") if draw.random() < 0.6 else text


class CommandVocabulary:
    def __init__(self, titles: Sequence[str] = ()):
        """`titles`: names of songs, artists and films, beside those of vocabulary.txt."""
        self.lists, self.titles = read_lists(WORDS.read_text("utf-8")), titles
        self.special: Mapping[str, Callable[[Random], Value]] = {
            "area": self.area,
            "percent": self.percent,
            "degrees": self.degrees,
            "kelvin": self.kelvin,
            "device_name": lambda draw: self.name(DEVICES, draw),
            "opening_name": lambda draw: self.name(OPENINGS, draw),
            "search_query": self.search_query,
            "music": self.search_query,
            "item": self.item,
            "shopping_list_item": self.item,
            "todo_list_item": lambda draw: self.draw(draw.choice(("task", "item")), draw),
        }

    def __contains__(self, name: str) -> bool:
        return name in self.special or name in self.lists

    def draw(self, name: str, draw: Random) -> Value:
        if name in self.special:
            return self.special[name](draw)
        domain, suffix = name[:-5], name[-5:]
        return self.name([domain], draw) if suffix == "_name" else self.entry(name, draw)

    def entry(self, name: str, draw: Random) -> Value:
        return draw.choice(self.lists[name])

    def text(self, name: str, draw: Random) -> str:
        return self.entry(name, draw).text

    def area(self, draw: Random) -> Value:
        if draw.random() < 0.12:
            return Value(f"{self.text('person_name', draw)}'s {self.text('room_kind', draw)}")
        return self.entry("area", draw)

    def name(self, domains: Sequence[str], draw: Random) -> Value:
        """Draw a device's name: plain, or with its owner, its room or a number."""
        domain = draw.choice(domains)
        domain = NAME_LISTS.get(domain, domain)
        name = self.text(f"{domain}_name", draw)
        if domain in UNOWNED or name[0].isupper():
            return Value(name)
        form = draw.random()
        if form < 0.07:
            return Value(f"{self.text('person_name', draw)}'s {name}")
        if form < 0.2 and (domain != "light" or not re.fullmatch(r"\w+(light|lamp|fan)s?", name)):
            return self.in_room(domain, name, draw)
        if form < 0.25 and not name[-1].isdigit():
            return Value(f"{name} {draw.choice(('1', '2', '3', 'one', 'two'))}")
        return Value(name)

    def in_room(self, domain: str, name: str, draw: Random) -> Value:
        """Name a device after its room, unless the room and the kind of device alone would name it."""
        if re.fullmatch(r"(lights?|lamps?|fans?|blinds?|curtains?|shades?|shutters?|windows?|doors?)", name):
            return Value(name)
        return Value(f"{self.text('area', draw)} {name}")

    def starts_with_room(self, name: str) -> bool:
        return any(name.startswith(f"{room.text} ") for room in self.lists["area"]) or "'s " in name

    def percent(self, draw: Random) -> Value:
        form = draw.random()
        if form < 0.14:
            return self.entry("fraction", draw)
        if form < 0.24:
            return self.entry("full", draw)
        number = draw.choice(range(5, 101, 5)) if draw.random() < 0.7 else draw.randint(0, 100)
        return Value(
            spoken_number(number, draw) + draw.choice(("", "%", " %", " percent", " percent")), number
        )

    def degrees(self, draw: Random) -> Value:
        whole = temperature(draw)
        number = whole + 0.5 if draw.random() < 0.12 else whole
        text = spoken_number(number, draw)
        if number != whole and draw.random() < 0.5:
            text = f"{spoken_number(whole, draw)} and a half"
        return Value(text + draw.choice(("", "", " degrees", "°", " degrees")), number)

    def kelvin(self, draw: Random) -> Value:
        if draw.random() < 0.4:
            return Value(
                *draw.choice(
                    (
                        ("warm white", 2700),
                        ("cool white", 4000),
                        ("cold white", 4000),
                        ("daylight", 6500),
                        ("candle light", 1900),
                    )
                )
            )
        number = (
            draw.choice(range(1000, 10001, 100))
            if draw.random() < 0.4
            else draw.choice(range(2000, 6600, 100))
        )
        return Value(spoken_number(number, draw) + draw.choice((" kelvin", " kelvin", "k", " k", "")), number)

    def search_query(self, draw: Random) -> Value:
        if self.titles and draw.random() < 0.6:
            return Value(draw.choice(self.titles))
        return self.entry(draw.choice(("music", "music", "artist")), draw)

    def item(self, draw: Random) -> Value:
        item = self.text("item", draw)
        return Value(f"{self.text('amount', draw)} {item}" if draw.random() < 0.15 else item)


def temperature(draw: Random) -> int:
    """Draw a room's temperature in degrees Celsius or Fahrenheit, now and then any from 0 to 99."""
    return draw.choice(
        (draw.randint(15, 28), draw.randint(16, 25), draw.randint(60, 80), draw.randint(0, 99))
    )
