"""Rows of `home-commands`: prompts, calls and tools, made of Home Assistant's templates."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

REASON = "run  pip install hassil==3.12.1 home-assistant-intents==2026.10.27"
pytest.importorskip("hassil", reason=REASON)
pytest.importorskip("home_assistant_intents", reason=REASON)

from hamburger_edge.calls.catalogue import read_catalogue_file  # noqa: E402
from hamburger_edge.calls.compact_form import checked_calls, encode, parse  # noqa: E402
from hamburger_edge.models.zoo.home_commands.making import generate, judge  # noqa: E402
from hamburger_edge.models.zoo.home_commands.making.commands import Commands  # noqa: E402
from hamburger_edge.models.zoo.home_commands.making.generate import distinct, make_commands  # noqa: E402
from hamburger_edge.models.zoo.home_commands.making.parser import HomeParser  # noqa: E402
from hamburger_edge.models.zoo.home_commands.making.tools import tools  # noqa: E402

INTENTS = 42
WILDCARDS = (
    "HassBroadcast",
    "HassMediaSearchAndPlay",
    "HassStartTimer",
)  # templates that match nearly any text


@pytest.fixture(scope="module")
def commands() -> Commands:
    return make_commands(seed=1)


@pytest.fixture(scope="module")
def rows(commands: Commands) -> list[dict[str, Any]]:
    return list(itertools.islice(distinct(commands), 2000))


def assert_valid(rows: list[dict[str, Any]], commands: Commands) -> None:
    validators = {
        tool["function"]["name"]: jsonschema.Draft202012Validator(tool["function"]["parameters"])
        for tool in tools(commands.templates)
    }
    for row in rows:
        for call in row["calls"]:
            validators[call["name"]].validate(call["arguments"])


def test_every_generated_call_validates_against_its_tool(
    rows: list[dict[str, Any]], commands: Commands
) -> None:
    assert_valid(rows, commands)


def test_temperatures_with_a_half_stay_within_their_bounds(commands: Commands) -> None:
    draw = Random(3)
    values = [commands.sampler.vocabulary.degrees(draw).value for _ in range(20_000)]
    assert 0 <= min(values) <= max(values) <= 100


def test_equal_seeds_give_equal_rows_and_other_seeds_give_others(rows: list[dict[str, Any]]) -> None:
    assert list(itertools.islice(distinct(make_commands(seed=1)), 50)) == rows[:50]
    assert list(itertools.islice(distinct(make_commands(seed=2)), 50)) != rows[:50]


def test_every_intent_occurs_and_no_rare_one_drowns(rows: list[dict[str, Any]], commands: Commands) -> None:
    counts = dict.fromkeys(commands.templates.package, 0)
    for call in itertools.chain.from_iterable(row["calls"] for row in rows):
        counts[call["name"]] += 1
    assert len(counts) == INTENTS
    assert min(counts.values()) >= 3, counts
    assert max(counts.values()) < 0.15 * sum(counts.values())


def test_rows_hold_one_call_or_two_or_none(rows: list[dict[str, Any]]) -> None:
    shares = [sum(len(row["calls"]) == count for row in rows) / len(rows) for count in range(3)]
    assert sum(shares) == pytest.approx(1)
    assert 0.1 < shares[0] < 0.25
    assert 0.08 < shares[2] < 0.25


def test_rooms_names_and_free_texts_stand_in_the_prompt(rows: list[dict[str, Any]]) -> None:
    copied = ("area", "name", "floor", "item", "message", "search_query", "conversation_command")
    for row in rows:
        for call in row["calls"]:
            for slot in copied:
                assert call["arguments"].get(slot, "") in row["prompt"], row


def test_device_named_by_a_room_is_in_no_other_room(rows: list[dict[str, Any]], commands: Commands) -> None:
    both = [
        call["arguments"]["name"]
        for row in rows
        for call in row["calls"]
        if {"name", "area"} <= call["arguments"].keys()
    ]
    assert len(both) > 20
    assert not [name for name in both if commands.sampler.vocabulary.starts_with_room(name.lower())]


def home_of(call: dict[str, Any], domains: tuple[str, ...]) -> dict[str, Any]:
    """A home that has the rooms and devices of a call and no others."""
    arguments = call["arguments"]
    return {
        "area": [arguments["area"]] if "area" in arguments else [],
        "floor": [arguments["floor"]] if "floor" in arguments else [],
        "name": {domain: [arguments["name"]] for domain in domains if "name" in arguments},
    }


def test_home_assistant_parses_sentences_of_its_templates_to_the_same_calls(commands: Commands) -> None:
    """Except templates with free text and the few sentences that two templates share."""
    draw, right, wrong = Random(5), 0, []
    parser = HomeParser({"area": [], "floor": [], "name": {}})
    for intent, templates in commands.templates.package.items():
        if intent in WILDCARDS:
            continue
        for template in draw.sample(templates, min(4, len(templates))):
            row = commands.plain_row(template, draw)
            parser.home(home_of(row["calls"][0], template.domains[:1]))
            calls = parser.calls(row["prompt"])
            if judge.keys(calls) == judge.keys(row["calls"]):
                right += 1
            else:
                wrong.append((row["prompt"], row["calls"], calls))
    assert right >= 0.9 * (right + len(wrong)), wrong


def test_rows_are_examples_of_tune(rows: list[dict[str, Any]], commands: Commands, tmp_path: Path) -> None:
    """Each row's calls, written in the compact form and read again, are the same calls."""
    (tmp_path / "tools.json").write_text(json.dumps(tools(commands.templates)))
    catalogue = read_catalogue_file(tmp_path / "tools.json")
    for row in rows:
        calls = checked_calls(row["calls"], catalogue, "calls")
        read = parse(encode(calls, catalogue), catalogue)
        assert judge.keys([{"name": c.name, "arguments": c.arguments} for c in read]) == judge.keys(
            row["calls"]
        )


def test_commands_by_hand_are_valid_and_not_among_the_rows(
    rows: list[dict[str, Any]], commands: Commands
) -> None:
    by_hand = generate.read_rows(generate.BY_HAND)
    assert sum(bool(row["calls"]) for row in by_hand) == 100
    assert_valid(by_hand, commands)
    known = {generate.plain(row["prompt"]) for row in by_hand}
    assert not known & {generate.plain(row["prompt"]) for row in rows}
    always = SimpleNamespace(
        row=lambda number: {"prompt": f"{by_hand[0]['prompt']}!" if number < 9 else "off"}
    )
    assert next(distinct(always)) == {"prompt": "off"}  # type: ignore[arg-type]


def test_rows_of_another_file_can_be_left_out(commands: Commands) -> None:
    first, second = itertools.islice(distinct(commands), 2)
    assert next(distinct(commands, [{"prompt": first["prompt"].upper()}])) == second
    compressed = generate.BY_HAND.parents[2] / "home-commands" / "examples.jsonl.gz"
    assert len(generate.read_rows(compressed)) == 40_000


def test_judge_tells_functions_values_and_whole_calls_apart() -> None:
    score = judge.Score()
    call = {"name": "HassLightSet", "arguments": {"area": "Kitchen", "domain": "light", "brightness": 50}}
    for changes in ({}, {"domain": "fan"}, {"brightness": 40}):
        score.add([call], [{**call, "arguments": {**call["arguments"], "area": "kitchen", **changes}}])
    score.add([], [call])
    assert (score.rows, score.function, score.values, score.whole) == (4, 3, 2, 1)
