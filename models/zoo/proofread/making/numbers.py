"""Numbers, times, dates and sums of money; other ones in the place of those of a text."""

from __future__ import annotations

import re
from random import Random

from hamburger_edge.models.zoo.proofread.making.lists import LISTS

MONTHS = LISTS["months"]
NUMBER = re.compile(
    r"(?P<phone>\(?\b\d{3}\)?[- ]\d{3}-\d{4}\b)|(?P<time>\b\d{1,2}:\d\d\b)|"
    r"(?P<hour>\b\d{1,2}(?= ?[ap]\.?m\b))|"
    r"(?P<money>[$£€]\d[\d,]*(?:\.\d\d)?)|(?P<ordinal>\b\d{1,2}(?:st|nd|rd|th)\b)|(?P<decimal>\b\d+\.\d+\b)|"
    r"(?P<number>(?<![\w.,/-])\d{1,6}(?![\w/-]|[.,]\d))"
)


def other_numbers(text: str, draw: Random) -> str:
    """The text with other figures; 0 and 1 stay, since nouns depend on them."""
    return NUMBER.sub(lambda found: _other(found.lastgroup or "", found[0], draw), text)


def _other(kind: str, old: str, draw: Random) -> str:
    if kind == "phone":
        return phone(draw)
    if kind == "time":
        return f"{draw.randint(1, 12)}:{draw.randint(0, 59):02d}"
    if kind == "hour":
        return str(draw.randint(1, 12))
    if kind == "money":
        return money(draw)
    if kind == "ordinal":
        return ordinal(draw.randint(1, 31))
    if kind == "decimal":
        return f"{draw.randint(0, 99)}.{draw.randint(0, 9)}"
    return old if old in ("0", "1") else number(draw)


def number(draw: Random) -> str:
    return str(draw.randint(2, draw.choice((9, 12, 30, 99, 500, 2500))))


def phone(draw: Random) -> str:
    parts = draw.randint(200, 999), draw.randint(200, 999), draw.randint(0, 9999)
    return draw.choice(("{}-{}-{:04d}", "({}) {}-{:04d}", "+44 {} {}{:04d}", "{} {} {:04d}")).format(*parts)


def money(draw: Random) -> str:
    amount = draw.randint(2, draw.choice((9, 50, 400, 9000, 250000)))
    sign = draw.choice("$$$$$£€")
    if amount < 1000 and draw.random() < 0.4:
        return f"{sign}{amount}.{draw.randint(0, 99):02d}"
    return f"{sign}{amount:,}" if draw.random() < 0.7 else f"{sign}{amount}"


def ordinal(day: int) -> str:
    return f"{day}{'th' if 10 < day < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def time(draw: Random) -> str:
    hour, minute = draw.randint(1, 12), draw.randint(0, 59)
    form = draw.choice(
        ("{}:{:02d} pm", "{}:{:02d} am", "{} pm", "{}am", "{}:{:02d}", "{} o'clock", "{} p.m.")
    )
    return form.format(hour, minute)


def date(draw: Random) -> str:
    day, month, year = draw.randint(1, 28), draw.randint(1, 12), draw.randint(1950, 2030)
    name = MONTHS[month - 1]
    forms = (
        f"{name} {day}",
        f"{name} {ordinal(day)}",
        f"{day} {name} {year}",
        f"{day}/{month}/{year}",
        f"{name} {year}",
    )
    return draw.choice(
        (*forms, f"{year}-{month:02d}-{day:02d}", f"the {ordinal(day)} of {name}", f"{name} {day}, {year}")
    )
