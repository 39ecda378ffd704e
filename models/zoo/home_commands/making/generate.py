"""Write rows of prompt and calls, and the tools they call.

    python -m hamburger_edge.models.zoo.home_commands.making.generate OUT.jsonl --rows 40000

Needs  pip install hassil==3.12.1 home-assistant-intents==2026.10.27 . A row is
{"prompt": ..., "calls": [{"name": ..., "arguments": {...}}]}; the same seed gives the same rows.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hamburger_edge.models.zoo.home_commands.making.commands import Commands
from hamburger_edge.models.zoo.home_commands.making.off_topic import (
    OTHER_TASKS,
    OffTopicSentences,
    everyday_sentences,
    spoken_commands,
)
from hamburger_edge.models.zoo.home_commands.making.sampler import SentenceSampler
from hamburger_edge.models.zoo.home_commands.making.templates import read_templates
from hamburger_edge.models.zoo.home_commands.making.tools import tools
from hamburger_edge.models.zoo.home_commands.making.vocabulary import CommandVocabulary

BY_HAND = Path(__file__).with_name("by-hand.jsonl")


def make_commands(seed: int = 0, everyday: Sequence[str] = ()) -> Commands:
    templates, examples = read_templates(), spoken_commands()
    sampler = SentenceSampler(templates, CommandVocabulary(titles=titles(examples)))
    others = [prompt for prompt, answer in examples if answer["intent"] in OTHER_TASKS]
    return Commands(templates, sampler, OffTopicSentences(sampler, others, everyday), seed)


def titles(examples: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return names of songs, artists, films and playlists that people spoke."""
    fields = ("artist", "album", "track", "playlist", "entity_name", "object_name", "movie_name")
    found = {
        str(slot): None for _, answer in examples for name, slot in answer["slots"].items() if name in fields
    }
    return [title for title in found if title.replace(" ", "").isalnum() and len(title) > 2]


def distinct(commands: Commands, without: Iterable[dict[str, Any]] = ()) -> Iterator[dict[str, Any]]:
    """Yield rows without end: no prompt twice, none of `without`, and none written by hand for judging."""
    others = {plain(row["prompt"]) for row in (*without, *read_rows(BY_HAND))}
    known = {""}
    for number in itertools.count():
        row = commands.row(number)
        if row["prompt"] not in known and plain(row["prompt"]) not in others:
            known.add(row["prompt"])
            yield row


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file of rows, which may be compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def plain(prompt: str) -> str:
    """Return a prompt in small letters without marks at its ends."""
    return prompt.lower().strip(" .!?")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, metavar="OUT.jsonl")
    parser.add_argument("--rows", type=int, default=40000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", type=Path, help="leave out the prompts of this file of rows")
    parser.add_argument(
        "--everyday", type=Path, help='JSON lines with "domain" and "text": more off-topic sentences'
    )
    parser.add_argument("--tools", type=Path, help="write the tools in OpenAI's form to this file")
    options = parser.parse_args()
    everyday = everyday_sentences(options.everyday) if options.everyday else ()
    commands = make_commands(options.seed, everyday)
    without = read_rows(options.without) if options.without else ()
    with options.out.open("w", encoding="utf-8") as file:
        for row in itertools.islice(distinct(commands, without), options.rows):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    if options.tools:
        options.tools.write_text(json.dumps(tools(commands.templates), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
