"""Write commands in phrases that the benchmark lacks, as rows {"prompt": ..., "answer": ...}.

    python -m hamburger_edge.models.zoo.voice_commands.making.generate OUT.jsonl --rows 16000

Values are those of values.txt, and of the benchmark's training commands. The same seed gives the same rows.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from hamburger_edge.models.zoo.voice_commands.making.phrases import (
    PhrasePart,
    PhraseTemplates,
    read_templates,
    read_values,
)

COMMANDS = Path(__file__).parents[2] / "voice-commands"
MADE = 300  # values made for each list of `names`
NONE = json.dumps({"intent": "none", "slots": {}})


def read_rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(COMMANDS / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def slot_orders(schema: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the order in which the answers of each intent name their slots."""
    return {
        form["properties"]["intent"]["const"]: list(form["properties"]["slots"]["properties"])
        for form in schema["anyOf"]
    }


def values_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the values of each slot in these commands."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for slot, value in json.loads(row["answer"])["slots"].items():
            if value in row["prompt"] and len(value) < 50 and value.isprintable() and "Ã" not in value:
                values[slot][value] = None
    return {slot: list(texts) for slot, texts in values.items()}


def with_made_names(
    values: Mapping[str, Sequence[str]], templates: PhraseTemplates, draw: Random
) -> dict[str, Sequence[str]]:
    """Return the values with made ones, so that borders are not learned from known titles."""
    joined = dict(values)
    for name, form in templates.names.items():
        made = (templates.draw(f"({form})", values, draw) for _ in range(MADE))
        texts = ["".join(piece.text for piece in pieces) for pieces in made]
        joined[name] = [*values[name], *(text.title() if draw.random() < 0.5 else text for text in texts)]
    return joined


def spoken(
    pieces: Sequence[PhrasePart], words: Mapping[str, Sequence[str]], draw: Random
) -> list[PhrasePart]:
    """Return the pieces with politeness, in one of the letter cases that people write."""
    first = pieces[0].text.split(" ")[0].lower()
    asks = first in words["verb"]
    before = []
    if draw.random() < (0.35 if asks else 0.08):
        opening = draw.choice([*words["call"], *(words["request"] if asks else ())])
        before.append(PhrasePart(opening + draw.choice((" ", " ", ", "))))
    after = (
        [PhrasePart(draw.choice((" ", " ", ", ")) + draw.choice(words["thanks"]))]
        if draw.random() < 0.12
        else []
    )
    pieces = [*before, *pieces, *after]
    form = draw.random()
    if form < 0.5:
        pieces = [PhrasePart(piece.text.lower(), piece.slot) for piece in pieces]
    elif form < 0.52:
        pieces = [PhrasePart(piece.text.upper(), piece.slot) for piece in pieces]
    elif form < 0.85 and not pieces[0].slot:
        text = pieces[0].text
        pieces = [PhrasePart(text[:1].upper() + text[1:]), *pieces[1:]]
    mark = "?" if first in words["question"] else draw.choice("..!")
    return [*pieces, PhrasePart(mark)] if form > 0.6 and draw.random() < 0.6 else pieces


class VoiceCommands:
    def __init__(
        self, templates: PhraseTemplates, values: Mapping[str, Sequence[str]], orders: Mapping[str, Any]
    ):
        self.templates, self.values, self.orders = templates, values, orders

    def row(self, number: int, seed: int) -> dict[str, Any] | None:
        """Return a command; None if a value would be ambiguous, or a sentence have a slot twice."""
        draw = Random(seed * 1_000_003 + number)
        intent = draw.choice(list(self.templates.phrases))
        phrase = draw.choice(self.templates.phrases[intent])
        pieces = spoken(self.templates.draw(phrase, self.values, draw), self.values, draw)
        slots = {piece.slot: piece.text for piece in pieces if piece.slot}
        if intent == "none":
            return {"prompt": "".join(piece.text for piece in pieces), "answer": NONE}
        if not slots or len(slots) < sum(bool(piece.slot) for piece in pieces):
            return None
        ordered = {slot: slots[slot] for slot in self.orders[intent] if slot in slots}
        answer = json.dumps({"intent": intent, "slots": ordered}, ensure_ascii=False)
        return {"prompt": "".join(piece.text for piece in pieces), "answer": answer}


def distinct(
    commands: VoiceCommands, seed: int, without: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield rows without end: no prompt twice, and none of `without`."""
    known = {plain(row["prompt"]) for row in without}
    for number in itertools.count():
        row = commands.row(number, seed)
        if row is not None and plain(row["prompt"]) not in known:
            known.add(plain(row["prompt"]))
            yield row


def plain(prompt: str) -> str:
    """Return a prompt in small letters without marks at its ends."""
    return prompt.lower().strip(" .!?")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, metavar="OUT.jsonl")
    parser.add_argument("--rows", type=int, default=16000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    examples = read_rows("examples.jsonl.gz")
    orders = slot_orders(json.loads((COMMANDS / "schema.json").read_text("utf-8")))
    templates = read_templates()
    values = {**values_of(examples), **read_values()}
    commands = VoiceCommands(templates, with_made_names(values, templates, Random(options.seed)), orders)
    rows = distinct(commands, options.seed, [*examples, *read_rows("by-hand.jsonl.gz")])
    with options.out.open("w", encoding="utf-8") as file:
        for row in itertools.islice(rows, options.rows):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
