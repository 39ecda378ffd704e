"""Sentences that are no command: phrases of off_topic.txt, and texts that people said to other assistants."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

from hassil.parse_expression import parse_sentence

from hamburger_edge.models.zoo.home_commands.making.sampler import SentenceSampler
from hamburger_edge.models.zoo.home_commands.making.spoken import written
from hamburger_edge.models.zoo.home_commands.making.templates import Template

PHRASES = Path(__file__).with_name("off_topic.txt")
SPOKEN_COMMANDS = Path(__file__).parents[2] / "voice-commands" / "examples.jsonl.gz"
OTHER_TASKS = ("BookRestaurant", "RateBook", "SearchScreeningEvent", "AddToPlaylist")
# Of these domains some sentences are commands for a home.
NEAR_DOMAINS = ("Media", "Music", "Weather", "Movies")
NEAR_WORDS = re.compile(
    r"\b(play|pause|music|song|weather|timer|light|lights|volume|temperature|tv|television|speaker|list|time|"
    r"date|room|kitchen|lock|unlock|open|turn|switch|set|hi|hello|nothing|never mind|forget|cancel)\b",
    re.IGNORECASE,
)


def everyday_sentences(path: Path) -> list[str]:
    """Return the sentences of the file that are no command for a home."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        row["text"]
        for row in rows
        if row["domain"] not in NEAR_DOMAINS and not NEAR_WORDS.search(row["text"]) and len(row["text"]) < 160
    ]


def spoken_commands() -> list[tuple[str, dict[str, str]]]:
    """Return prompts and parsed answers of the training examples of `voice-commands`."""
    with gzip.open(SPOKEN_COMMANDS, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [(row["prompt"], json.loads(row["answer"])) for row in rows]


class OffTopicSentences:
    def __init__(self, sampler: SentenceSampler, others: Sequence[str], everyday: Sequence[str] = ()):
        """`others`: commands for other tasks; `everyday`: sentences of people, left out if there are none."""
        lines = PHRASES.read_text("utf-8").splitlines()
        self.templates = [
            Template("", "off topic", parse_sentence(line), {}, ())
            for line in lines
            if line and line[0] != "#"
        ]
        self.sampler, self.sources = sampler, [source for source in (others, everyday, everyday) if source]

    def sentence(self, draw: Random) -> str:
        if draw.random() < 0.5 or not self.sources:
            pieces = self.sampler.pieces(draw.choice(self.templates), draw)
            return "".join(piece.text for piece in written(pieces, draw, question=False))
        text = draw.choice(draw.choice(self.sources))
        return text.lower().rstrip(".?!") if draw.random() < 0.45 else text
