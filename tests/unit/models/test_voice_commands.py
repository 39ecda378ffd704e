"""Rows that the phrases of `voice-commands` make: prompts and answers."""

from __future__ import annotations

import itertools
import json
from random import Random
from typing import Any

import jsonschema
import pytest

from hamburger_edge.models.zoo.voice_commands.making.generate import (
    COMMANDS,
    NONE,
    VoiceCommands,
    distinct,
    plain,
    read_rows,
    slot_orders,
    values_of,
    with_made_names,
)
from hamburger_edge.models.zoo.voice_commands.making.phrases import (
    PhrasePart,
    PhraseTemplates,
    read_templates,
    read_values,
)

SCHEMA = json.loads((COMMANDS / "schema.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def commands() -> VoiceCommands:
    templates, values = read_templates(), {**values_of(read_rows("examples.jsonl.gz")), **read_values()}
    return VoiceCommands(templates, with_made_names(values, templates, Random(0)), slot_orders(SCHEMA))


@pytest.fixture(scope="module")
def rows(commands: VoiceCommands) -> list[dict[str, Any]]:
    return list(itertools.islice(distinct(commands, 3, read_rows("by-hand.jsonl.gz")), 2000))


def test_every_answer_validates_and_copies_its_values_in_the_schema_s_order(
    rows: list[dict[str, Any]],
) -> None:
    validator, orders = jsonschema.Draft202012Validator(SCHEMA), slot_orders(SCHEMA)
    for row in rows:
        answer = json.loads(row["answer"])
        validator.validate(answer)
        assert all(value in row["prompt"] for value in answer["slots"].values()), row
        order = [slot for slot in orders[answer["intent"]] if slot in answer["slots"]]
        assert list(answer["slots"]) == order, row


def test_no_prompt_repeats_or_is_one_that_judges(rows: list[dict[str, Any]]) -> None:
    prompts = [plain(row["prompt"]) for row in rows]
    assert len(set(prompts)) == len(prompts)
    assert not set(prompts) & {plain(row["prompt"]) for row in read_rows("by-hand.jsonl.gz")}


def test_rows_have_every_intent_and_the_same_seed_makes_the_same(
    rows: list[dict[str, Any]], commands: VoiceCommands
) -> None:
    assert {json.loads(row["answer"])["intent"] for row in rows} == set(slot_orders(SCHEMA))
    assert list(itertools.islice(distinct(commands, 3, read_rows("by-hand.jsonl.gz")), 50)) == rows[:50]
    assert NONE in {row["answer"] for row in rows}


def test_prompts_are_tidy(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        prompt = row["prompt"]
        assert prompt == " ".join(prompt.split()), prompt
        assert not set("<>[]{}|=") & set(prompt), prompt


def test_templates_expand_groups_rules_and_values() -> None:
    templates = PhraseTemplates({"who": "(me|us)"}, {}, {})
    values = {"day": ["on monday=monday"], "cuisine": ["italian"]}
    phrase = "get <who> a {cuisine} (place|place) {time=day}"
    pieces = templates.draw(phrase, values, Random(0))
    assert [piece for piece in pieces if piece.slot] == [
        PhrasePart("italian", "cuisine"),
        PhrasePart("monday", "time"),
    ]
    text = "".join(piece.text for piece in pieces)
    assert text in ("get me an italian place on monday", "get us an italian place on monday")
    drawn = {"".join(p.text for p in templates.draw("a[ b]", {}, Random(seed))) for seed in range(20)}
    assert drawn == {"a", "a b"}


def test_made_names_join_the_values_of_their_list() -> None:
    templates = PhraseTemplates({}, {"track": "the {thing}|{thing} of {first}"}, {})
    values = {"track": ["Yesterday"], "thing": ["river"], "first": ["Ida"], "day": ["today"]}
    joined = with_made_names(values, templates, Random(0))
    assert joined["track"][0] == "Yesterday"
    assert set(joined["track"][1:]) == {"the river", "The River", "river of Ida", "River Of Ida"}
    assert joined["day"] == ["today"]
