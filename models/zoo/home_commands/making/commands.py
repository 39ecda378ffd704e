"""Rows of prompt and calls: any number of them, the same for the same seed and number."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from hamburger_edge.models.zoo.home_commands.making.off_topic import OffTopicSentences
from hamburger_edge.models.zoo.home_commands.making.sampler import SentencePart, SentenceSampler
from hamburger_edge.models.zoo.home_commands.making.spoken import FREE_TEXT, spoken, written
from hamburger_edge.models.zoo.home_commands.making.templates import Template, Templates
from hamburger_edge.models.zoo.home_commands.making.tools import tools

OFF_TOPIC = 0.17  # share of rows without a call
TWO_COMMANDS = 0.1
TWO_ROOMS = 0.04
PHRASES = 0.5  # share of commands from phrases.txt
SHARES = {  # of an intent, relative to 1
    "HassTurnOn": 6,
    "HassTurnOff": 6,
    "HassLightSet": 5,
    "HassGetState": 8,
    "HassStartTimer": 2,
    "HassClimateSetTemperature": 2,
    "HassSetPosition": 1.5,
    "HassSetVolumeRelative": 1.5,
    "HassMediaSearchAndPlay": 2,
    "HassShoppingListAddItem": 1.5,
    "HassRespond": 0.6,
    "HassNevermind": 0.5,
    "HassGetCurrentDate": 0.6,
    "HassGetCurrentTime": 0.6,
}
JOINTS = (
    " and ",
    " and ",
    " and ",
    " and then ",
    " then ",
    ", ",
    ". ",
    " also ",
    " and also ",
    ", and ",
    "; ",
)
QUESTION = re.compile(
    r"(what|how|is|are|who|where|which|did|when|do|have|has|will|can|could)\b", re.IGNORECASE
)


class Commands:
    def __init__(
        self, templates: Templates, sampler: SentenceSampler, off_topic: OffTopicSentences, seed: int = 0
    ):
        self.templates, self.sampler, self.off_topic, self.seed = templates, sampler, off_topic, seed
        self.order = {
            tool["function"]["name"]: list(tool["function"]["parameters"]["properties"])
            for tool in tools(templates)
        }
        self.intents = list(templates.package)
        self.shares = [SHARES.get(intent, 1) for intent in self.intents]

    def row(self, number: int) -> dict[str, Any]:
        """Return {"prompt", "calls"}."""
        draw = Random(f"{self.seed}/{number}")
        kind = draw.random()
        if kind < OFF_TOPIC:
            return {"prompt": self.off_topic.sentence(draw), "calls": []}
        if kind < OFF_TOPIC + TWO_COMMANDS:
            return self.two_commands(draw)
        template = self.template(draw)
        pieces = spoken(self.sampler.pieces(template, draw), draw)
        if kind < OFF_TOPIC + TWO_COMMANDS + TWO_ROOMS * 3 and (
            both := self.two_rooms(template, pieces, draw)
        ):
            return both
        return self.finished([(template.intent, template.slots)], [pieces], [(0,)], draw)

    def plain_row(self, template: Template, draw: Random) -> dict[str, Any]:
        """Return a sentence of a template as it stands."""
        pieces = self.sampler.pieces(template, draw)
        prompt = "".join(piece.text for piece in pieces)
        return {"prompt": prompt, "calls": [self.call(template.intent, template.slots, pieces)]}

    def template(self, draw: Random) -> Template:
        """Draw the intent, then the combination of slots, then the template: rare ones must not drown."""
        [intent] = draw.choices(self.intents, self.shares)
        phrases = self.templates.phrases.get(intent)
        if phrases and draw.random() < PHRASES:
            return draw.choice(phrases)
        return draw_by_combination(self.templates.package[intent], draw)

    def two_commands(self, draw: Random) -> dict[str, Any]:
        while True:
            first, second = self.template(draw), self.template(draw)
            one, two = self.sampler.pieces(first, draw), self.sampler.pieces(second, draw)
            silent = {"HassNevermind", "HassRespond"} & {first.intent, second.intent}
            if not silent and one[-1].slot not in FREE_TEXT and "conversation_command" not in slots(two):
                break
        one, two = spoken(one, draw), [SentencePart(draw.choice(JOINTS)), *two]
        return self.finished(
            [(first.intent, first.slots), (second.intent, second.slots)], [one, two], [(0,), (1,)], draw
        )

    def two_rooms(
        self, template: Template, pieces: list[SentencePart], draw: Random
    ) -> dict[str, Any] | None:
        """Say a command of two rooms or two devices: a call each."""
        if template.intent == "HassGetState" or "timer" in template.intent.lower():
            return None
        places = [
            i for i, p in enumerate(pieces) if p.copied and p.slot in ("area", "name") and p.text.islower()
        ]
        if not places:
            return None
        place = draw.choice(places)
        piece = pieces[place]
        again = self.sampler.pieces(template, draw)
        others = [p for p in again if p.slot == piece.slot and p.text.islower() and p.text != piece.text]
        if {"area", "name"} <= slots(pieces):
            others = [p for p in others if not self.sampler.vocabulary.starts_with_room(p.text)]
        if not others:
            return None
        joint = draw.choice((" and ", " and ", " and the ", " and my ")) if place else " and "
        head = (template.intent, template.slots)
        return self.finished(
            [head, head],
            [pieces[:place], [piece], [SentencePart(joint)], others[:1], pieces[place + 1 :]],
            [(0, 1), (0,), (), (1,), (0, 1)],
            draw,
        )

    def finished(
        self,
        heads: Sequence[tuple[str, Mapping[str, Any]]],
        parts: Sequence[list[SentencePart]],
        owners: Sequence[tuple[int, ...]],
        draw: Random,
    ) -> dict[str, Any]:
        """Write the parts as one prompt. `owners` lists the calls that each part's values belong to."""
        pieces = [piece for part in parts for piece in part]
        calls_of = [owner for part, owner in zip(parts, owners, strict=True) for _ in part]
        text = "".join(piece.text for piece in pieces)
        pieces = written(pieces, draw, QUESTION.match(text) is not None)
        calls = [
            self.call(
                intent, fixed, [p for p, owner in zip(pieces, calls_of, strict=False) if number in owner]
            )
            for number, (intent, fixed) in enumerate(heads)
        ]
        return {"prompt": "".join(piece.text for piece in pieces), "calls": calls}

    def call(self, intent: str, fixed: Mapping[str, Any], pieces: Sequence[SentencePart]) -> dict[str, Any]:
        values = dict(fixed) | {p.slot: p.text if p.value is None else p.value for p in pieces if p.slot}
        arguments = {name: values.pop(name) for name in self.order[intent] if name in values}
        assert not values, (intent, values)
        return {"name": intent, "arguments": arguments}


def slots(pieces: Sequence[SentencePart]) -> set[str]:
    return {piece.slot for piece in pieces}


def draw_by_combination(templates: Sequence[Template], draw: Random) -> Template:
    groups: dict[tuple[str, Any], list[Template]] = defaultdict(list)
    for template in templates:
        groups[template.combination, template.slots.get("domain")].append(template)
    group = draw.choice(list(groups.values()))
    return draw.choices(group, [template.weight for template in group])[0]
