"""Names, titles, products, codes and addresses to put into texts."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hamburger_edge.models.zoo.proofread.making.lists import LISTS


@dataclass(frozen=True)
class Names:
    """Pools to draw from; those for judging share no name with those for training."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    city: tuple[str, ...]
    company: tuple[str, ...]
    street: tuple[str, ...]

    def person(self, draw: Random) -> str:
        kind = draw.random()
        first = made_up(draw) if kind < 0.1 else draw.choice(self.first)
        if kind < 0.45:
            return first
        if kind > 0.92:
            return f"{draw.choice(('Mr.', 'Mrs.', 'Ms.', 'Dr.'))} {draw.choice(self.last)}"
        if kind > 0.87:
            return f"{first} {draw.choice(string.ascii_uppercase)}. {draw.choice(self.last)}"
        return f"{first} {draw.choice(self.last)}"

    def any(self, draw: Random) -> str:
        """A name of any kind, as people capitalise it."""
        makers: tuple[Callable[[], str], ...] = (
            lambda: self.person(draw),
            lambda: self.person(draw),
            lambda: draw.choice(self.city),
            lambda: draw.choice(self.company),
            lambda: product(draw),
            lambda: title(draw),
            lambda: f"{draw.choice((*self.last, made_up(draw)))} {draw.choice(PLACES)}",
        )
        return draw.choice(makers)()


PLACES, BRANDS, TITLE_WORDS = (LISTS[name] for name in ("places", "brands", "title words"))
ONSETS, VOWELS = LISTS["onsets"], LISTS["vowels"]
CODAS = ("", "", "", *LISTS["codas"])


def made_up(draw: Random) -> str:
    """A name that nobody has."""
    parts = draw.randint(2, 3)
    word = "".join(draw.choice(ONSETS) + draw.choice(VOWELS) for _ in range(parts)) + draw.choice(CODAS)
    return word.capitalize()


def product(draw: Random) -> str:
    brand = draw.choice(BRANDS) if draw.random() < 0.6 else made_up(draw)
    letters = "".join(draw.choices(string.ascii_uppercase, k=draw.randint(1, 3)))
    number = draw.choice((draw.randint(1, 15), draw.randint(1, 99) * 10, draw.randint(100, 9999)))
    forms = (
        f"{brand} {number}",
        f"{brand} {letters}{number}",
        f"{letters}-{number}",
        f"{brand} {letters}-{number}",
    )
    return draw.choice(
        (*forms, f"{brand} {draw.choice(BRANDS)}", f"i{brand}", f"{brand}{draw.choice(BRANDS)}")
    )


def title(draw: Random) -> str:
    one, two, three = draw.sample(TITLE_WORDS, 3)
    forms = (
        f"The {one} {two}",
        f"{one} of the {two}",
        f"{one} and {two}",
        f"{one} {two}",
        f"The {one} of {two} {three}",
    )
    return draw.choice((*forms, f"A {one} in {made_up(draw)}", f"{one} & {two}"))


def code(draw: Random) -> str:
    """An order number, a flight, a room, a version, a plate."""
    letters = "".join(draw.choices(string.ascii_uppercase, k=draw.randint(1, 4)))
    small = "".join(draw.choices(string.ascii_lowercase + string.digits, k=draw.randint(5, 10)))
    number = draw.randint(10, 10 ** draw.randint(2, 6))
    forms = (
        f"{letters}{number}",
        f"{letters}-{number}",
        f"#{number}",
        f"{number}-{letters}",
        small,
        f"{letters}/{number}",
    )
    version = ".".join(str(draw.randint(0, 20)) for _ in range(draw.randint(2, 3)))
    return draw.choice((*forms, f"v{version}", f"{letters}_{number}", f"{number}{letters[0].lower()}"))


def web(draw: Random, names: Names) -> str:
    """An address on the web, a mail address, a file, a handle."""
    word = draw.choice(TITLE_WORDS).lower() if draw.random() < 0.5 else made_up(draw).lower()
    first, last = (_ascii(draw.choice(pool)).lower() for pool in (names.first, names.last))
    end = draw.choice(("com", "org", "net", "io", "co.uk", "de", "edu", "fr", "app"))
    path = f"{draw.choice(TITLE_WORDS).lower()}/{draw.randint(1, 9999)}"
    forms = (
        f"www.{word}.{end}",
        f"https://{word}.{end}/{path}",
        f"{word}.{end}",
        f"{first}.{last}@{word}.{end}",
    )
    file = f"{word}_{draw.randint(1, 30)}.{draw.choice(('pdf', 'txt', 'xlsx', 'py', 'jpg', 'docx', 'zip'))}"
    return draw.choice(
        (*forms, f"{first}{draw.randint(1, 99)}@{word}.{end}", file, f"@{first}_{draw.randint(1, 99)}")
    )


def _ascii(name: str) -> str:
    return "".join(letter for letter in name if letter in string.ascii_letters) or "info"
