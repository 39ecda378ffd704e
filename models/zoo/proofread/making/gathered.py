"""All that examples are made of, as one file of JSON: see gather.py."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.models.zoo.proofread.making.names import Names
from hamburger_edge.models.zoo.proofread.making.words import Words


@dataclass(frozen=True)
class Gathered:
    words: Words
    names: dict[str, Names]  # "train" (and dev) and "judge"
    nouns: dict[str, list[str]]  # by what they name
    texts: dict[str, dict[str, list[str]]]  # by side and source

    def save(self, path: Path) -> None:
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(asdict(self), file, ensure_ascii=False, default=sorted)

    @classmethod
    def load(cls, path: Path) -> Gathered:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found = json.load(file)
        names = {of: Names(**each) for of, each in found["names"].items()}
        return cls(_words(found["words"]), names, found["nouns"], found["texts"])


def _words(found: Mapping[str, Any]) -> Words:
    sets = {name: frozenset(found[name]) for name in ("names", "wrong", "kept_back")}
    return Words(found["counts"], misspelled=found["misspelled"], reserved=found["reserved"], **sets)
