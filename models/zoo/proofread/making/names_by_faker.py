"""Pools of names of many languages, by the package faker."""

from __future__ import annotations

import hashlib
from random import Random

from faker import Faker

from hamburger_edge.models.zoo.proofread.making.lists import LISTS
from hamburger_edge.models.zoo.proofread.making.names import Names

LOCALES = LISTS["locales"]
ENGLISH = 0.5  # of the names, from the English-speaking locales
DRAWN = 6000  # names of each kind
HELD_BACK = 0.1  # of the names, for judging alone


def held_back(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] < 256 * HELD_BACK


def make_names(judging: bool) -> Names:
    fakers = [Faker(locale) for locale in LOCALES]
    for number, faker in enumerate(fakers):
        faker.seed_instance(number)
    draw = Random("names")
    english = [faker for faker, locale in zip(fakers, LOCALES, strict=True) if locale.startswith("en")]

    def pool(kind: str) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for _ in range(DRAWN):
            faker = draw.choice(english if draw.random() < ENGLISH else fakers)
            name = " ".join(str(getattr(faker, kind)()).split())
            if name and name[0].isupper() and held_back(name) == judging and "\t" not in name:
                found[name] = None
        return tuple(found)

    return Names(*(pool(kind) for kind in ("first_name", "last_name", "city", "company", "street_name")))
