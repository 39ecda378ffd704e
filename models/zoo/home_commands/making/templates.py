"""Templates of commands: Home Assistant's from its package, and those of phrases.txt in the same language.

The package `home-assistant-intents` holds the intents, their lists and rules; `hassil` parses the templates.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import home_assistant_intents
from hassil import Intents
from hassil.expression import Sentence
from hassil.intents import SlotList
from hassil.parse_expression import parse_sentence

PHRASES = Path(__file__).with_name("phrases.txt")
PACKAGE = Path(home_assistant_intents.__file__).parent

# `bedside lamp` is a name as spoken: the name `bedside` before a template's own `lamp` would be another rule.
NAME_BEFORE_LIGHT = "{name} <light>"
# A door named by its sensor and one named by its cover sound alike: `open` and `closed` are said of both.
AMBIGUOUS_STATES = "{bs_open_states:state}"
# `the bedroom TV` is a name as spoken; a room and a name beside each other are told apart more rarely.
ROOM_BESIDE_NAME = re.compile(r"\{area\} (\[<the>\] )?\{name\}")


@dataclass(frozen=True)
class Template:
    intent: str
    combination: str  # of slots, by the package's name; "phrase" for phrases.txt
    sentence: Sentence
    slots: Mapping[str, Any]  # that all its sentences have
    domains: tuple[str, ...]  # of the devices that {name} names
    weight: float = 1.0


@dataclass(frozen=True)
class Templates:
    package: Mapping[str, Sequence[Template]]  # by intent
    phrases: Mapping[str, Sequence[Template]]
    lists: Mapping[str, SlotList]
    rules: Mapping[str, Sentence]


def read_package() -> dict[str, Any]:
    """Return the package's English templates, lists and rules."""
    return dict(json.loads((PACKAGE / "data" / "en.json").read_text("utf-8")))


def read_descriptions() -> dict[str, Any]:
    """Return what the package says of each intent and its slots."""
    return dict(json.loads((PACKAGE / "intents.json").read_text("utf-8")))


def read_templates() -> Templates:
    intents = Intents.from_dict(read_package())
    phrases = PhraseReader(PHRASES.read_text("utf-8"))
    by_intent: dict[str, list[Template]] = defaultdict(list)
    for template in phrases.templates:
        by_intent[template.intent].append(template)
    return Templates(
        package={name: list(package_templates(intents, name)) for name in intents.intents},
        phrases=by_intent,
        lists=intents.slot_lists,
        rules={**intents.expansion_rules, **phrases.rules},
    )


def package_templates(intents: Intents, name: str) -> Iterator[Template]:
    for data in intents.intents[name].data:
        domains = (data.requires_context or {}).get("domain", ())
        combination = (data.metadata or {})["slot_combination"]
        for sentence in data.sentences:
            text = sentence.text or ""
            if NAME_BEFORE_LIGHT in text or AMBIGUOUS_STATES in text:
                continue
            weight = 0.15 if ROOM_BESIDE_NAME.search(text) else 1.0
            yield Template(name, combination, sentence, data.slots or {}, tuple(domains), weight)


@dataclass
class PhraseReader:
    """Reads phrases.txt: a heading with the intent and fixed slots, phrases indented below it."""

    text: str
    rules: dict[str, Sentence] = field(default_factory=dict)
    templates: list[Template] = field(default_factory=list)

    def __post_init__(self) -> None:
        intent, slots = "", {}
        for line in self.text.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if not line.startswith(" "):
                intent, *fixed = line.split()
                slots = dict(each.split("=") for each in fixed)
            elif intent == "rules":
                name, _, body = line.strip().partition(": ")
                self.rules[name] = parse_sentence(body)
            else:
                self.templates.append(Template(intent, "phrase", parse_sentence(line.strip()), slots, ()))
