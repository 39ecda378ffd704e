"""Write `checkable.jsonl`: short questions with answers that a rule can check.

    python -m hamburger_edge.benchmarks.checkable > evaluation/checkable.jsonl

The questions serve to find a setting that keeps every correct answer. There are four kinds with 250
questions each: arithmetic, formats, extraction and lists. Small models answer about half of them correctly,
so a loss of quality is easy to see. The file is committed; a test regenerates it and compares.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable, Iterator
from typing import Any

EACH = 250  # questions per kind


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words("Anna Ben Carla David Elena Felix Grace Hugo Irene Jonas Karin Leo Maria Nils Olga Paul")
CITIES = _words("Oslo Lima Cairo Madrid Vienna Lisbon Dublin Prague Athens Tokyo Nairobi Toronto")
THINGS = _words("apples books pencils shells stamps coins marbles cards eggs buttons")
COLOURS = _words("red blue green yellow black white brown purple")
WORDS = _words(
    "apple bridge candle desert engine forest garden hammer island jacket kitchen lemon mirror needle "
    "orange pencil rabbit silver table umbrella village window yellow zebra"
)
JOBS = _words("teacher baker nurse farmer painter driver pilot lawyer")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
UNITS = _words("zero one two three four five six seven eight nine ten eleven twelve")

Line = dict[str, Any]


def arithmetic(pick: random.Random) -> Line:
    a, b = pick.randint(2, 60), pick.randint(2, 40)
    small, few = pick.randint(2, 12), pick.randint(2, 9)
    name, things = pick.choice(NAMES), pick.choice(THINGS)
    more, fewer = max(a, b) + 1, min(a, b)
    text, value = pick.choice(
        [
            (f"What is {a} plus {b}?", a + b),
            (f"What is {more} minus {fewer}?", more - fewer),
            (f"What is {small} times {few}?", small * few),
            (f"What is {small * few} divided by {few}?", small),
            (f"What is half of {2 * a}?", a),
            (f"What is twice {a}?", 2 * a),
            (f"{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?", a + b),
            (f"{name} had {more} {things} and gave {fewer} away. How many {things} are left?", more - fewer),
            (f"There are {few} boxes with {small} {things} in each. How many {things} is that?", few * small),
            (f"Which number is larger, {a} or {a + b}? Answer with the number.", a + b),
            (f"Which number comes right after {a}?", a + 1),
        ]
    )
    return _line("arithmetic", text, "number", value)


def formats(pick: random.Random) -> Line:
    first, second, third = pick.sample(WORDS, 3)
    day, month, year = pick.randint(1, 28), pick.randint(1, 12), pick.randint(1950, 2030)
    number, key = pick.randint(2, 12), pick.choice(["name", "city", "colour", "item"])
    date = f"{year}-{month:02}-{day:02}"
    text, pattern = pick.choice(
        [
            (f"Write the word {first} in capital letters.", rf"\b{first.upper()}\b"),
            (f"Write the word {first} in square brackets.", rf"\[{first}\]"),
            (f'Write the word {first} in double quotation marks, like "this".', rf'"{first}"'),
            (f"Answer with one word only: {first}", rf"(?i)^\W*{first}\W*$"),
            (f"Write the date {day} {MONTHS[month - 1]} {year} as YYYY-MM-DD.", rf"\b{date}\b"),
            (f"Write the number {number} as a word.", rf"(?i)\b{UNITS[number]}\b"),
            (f"Write the number {UNITS[number]} in digits.", rf"\b{number}\b"),
            (
                f"Write the words {first}, {second} and {third} with a dash between each two.",
                rf"(?i){first} ?- ?{second} ?- ?{third}",
            ),
            (
                f'Write a JSON object with the key "{key}" and the value "{first}".',
                rf'\{{\s*"{key}"\s*:\s*"{first}"\s*\}}',
            ),
            (f"Repeat exactly: the {first} and the {second}", rf"(?i)the {first} and the {second}"),
            (f"Write the word {first} three times.", rf"(?is)\b{first}\b.*\b{first}\b.*\b{first}\b"),
        ]
    )
    return _line("format", text, "regex", pattern)


def extraction(pick: random.Random) -> Line:
    name, other = pick.sample(NAMES, 2)
    city, job, colour, word = (pick.choice(words) for words in (CITIES, JOBS, COLOURS, WORDS))
    year, price, age = pick.randint(1950, 2020), pick.randint(3, 95), pick.randint(19, 80)
    mail = f"{name.lower()}.{word}@example.org"
    sentences = [
        (f"{name} moved to {city} in {year} and became a {job}.", {"city": city, "year": str(year)}),
        (f"{name}, a {job} from {city}, is {age} years old.", {"age": str(age), "city": city}),
        (f"The {colour} {word} costs {price} dollars.", {"price": str(price), "colour": colour}),
        (f"Please write to {mail} before Friday.", {"email address": mail, "day": "Friday"}),
        (f"{name} met {other} in {city} on a Sunday.", {"city": city, "day": "Sunday"}),
        (f"In {year} {name} sold a {colour} car.", {"colour": colour, "year": str(year)}),
    ]
    sentence, facts = pick.choice(sentences)
    what = pick.choice(sorted(facts))
    asked = pick.choice(
        [
            f"Which {what} is in this sentence? {sentence}",
            f"{sentence}\nWhat is the {what}? Answer with the {what} only.",
            f'Find the {what} in this text: "{sentence}"',
        ]
    )
    return _line("extraction", asked, "regex", rf"(?i)(?<!\w){re.escape(facts[what])}(?!\w)")


def lists(pick: random.Random) -> Line:
    start, length = pick.randint(1, 20), pick.randint(4, 8)
    letters = string.ascii_uppercase[(at := pick.randint(0, 18)) : at + pick.randint(4, 7)]
    words = pick.sample(WORDS, 4)
    day, month = pick.randint(0, 6), pick.randint(0, 7)
    days = [DAYS[(day + i) % 7] for i in range(4)]
    months = MONTHS[month : month + 4]
    numbers = [str(start + i) for i in range(length)]
    evens = [str(2 * (start + i)) for i in range(5)]
    said = ", ".join(words)
    text, items = pick.choice(
        [
            (f"Count from {numbers[0]} to {numbers[-1]}.", numbers),
            (f"Count down from {numbers[-1]} to {numbers[0]}.", numbers[::-1]),
            (f"Write the even numbers from {evens[0]} to {evens[-1]}.", evens),
            (f"List the letters of the alphabet from {letters[0]} to {letters[-1]}.", [*letters]),
            (f"Name the four days of the week that begin with {days[0]}, in order.", days),
            (f"Name the months from {months[0]} to {months[-1]}.", months),
            (f"Put these words in alphabetical order: {said}.", sorted(words)),
            (f"Write these words as a numbered list: {said}.", words),
            (f"Write these words as bullet points, in this order: {said}.", words),
            (f"Repeat this list in reverse order: {said}.", words[::-1]),
        ]
    )
    if text.startswith("Write these words as a numbered list"):
        items = [part for number, word in enumerate(items, 1) for part in (str(number), word)]
    # between two items: punctuation or line breaks, then optionally "and" or an item number
    between = r"\b\W+(?:(?:and|\d+)\W+)?\b"
    return _line("list", text, "regex", r"(?is)\b" + between.join(map(re.escape, items)) + r"\b")


KINDS: tuple[Callable[[random.Random], Line], ...] = (arithmetic, formats, extraction, lists)


def _line(kind: str, prompt: str, type_: str, value: str | int) -> Line:
    return {"prompt": prompt, "kind": kind, "check": {"type": type_, "value": value}}


def lines() -> Iterator[str]:
    """Yield unique questions, one of each kind in rotation, so that any prefix of the file is balanced."""
    pick, seen = random.Random(0), set()
    for _ in range(EACH):
        for kind in KINDS:
            line = kind(pick)
            while line["prompt"] in seen:
                line = kind(pick)
            seen.add(line["prompt"])
            yield json.dumps(line, ensure_ascii=False)


if __name__ == "__main__":
    print("\n".join(lines()))
