"""Clean texts and mistakes together: any number of examples, the same for the same number."""

from __future__ import annotations

from random import Random

from hamburger_edge.models.zoo.proofread.making.gathered import Gathered
from hamburger_edge.models.zoo.proofread.making.mistakes import NoiseModel, Noisy
from hamburger_edge.models.zoo.proofread.making.sources import Side, refilled
from hamburger_edge.models.zoo.proofread.making.templates import Filler

SHARES = {  # of the examples, by where their texts come from
    "everyday": 0.32,
    "examples": 0.20,
    "patterns": 0.18,
    "definitions": 0.12,
    "commands": 0.10,
    "written": 0.08,
}
REFILLED = {"everyday": 0.7, "commands": 0.7, "examples": 0.25, "written": 0.25, "definitions": 0.0}
JOINED = 0.15  # of the examples are messages of two to four texts
LONGEST = 70  # words of a message


class Maker:
    def __init__(self, gathered: Gathered, *, of: Side = "train"):
        """`of`: the side that texts and names are taken from."""
        self.words, self.texts = gathered.words, gathered.texts[of]
        self.names = gathered.names["judge" if of == "judge" else "train"]
        self.noise = NoiseModel(self.words)
        self.filler = Filler(self.names, gathered.nouns)

    def clean(self, number: int) -> str:
        """The clean text of an example."""
        draw = Random(f"text/{number}")
        [source] = draw.choices(list(SHARES), list(SHARES.values()))
        parts = draw.choice((2, 2, 3, 4)) if draw.random() < JOINED and source != "definitions" else 1
        text = " ".join(self.one(source, draw) for _ in range(parts))
        if len(text.split()) > LONGEST:
            text = self.one(source, draw)
        return text

    def one(self, source: str, draw: Random) -> str:
        text = draw.choice(self.texts[source])
        if source == "patterns":
            return self.filler.fill(text, draw)
        return refilled(text, self.names, draw) if draw.random() < REFILLED[source] else text

    def example(self, number: int) -> tuple[Noisy, str]:
        """A text with mistakes, and the clean one."""
        text = self.clean(number)
        return self.noise.apply(text, f"noise/{number}"), text
