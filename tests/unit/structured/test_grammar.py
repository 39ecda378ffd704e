"""Allowed and forced tokens of a structured answer, and its dates and times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any

import numpy as np
import pytest
from helpers.grammar_walks import EOS, start, walk
from helpers.schemas import check, schemas
from helpers.toys.toy_tokenizers import byte_fallback
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.chat.tokenizer import TextStream, Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import SamplingSettings
from hamburger_edge.structured.formats import PATTERNS
from hamburger_edge.structured.grammar import Grammars
from hamburger_edge.structured.rewriting import LARGEST_INTEGER, rewritten


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(byte_fallback(tmp_path_factory.mktemp("tokenizer")))


@settings(max_examples=60)
@given(schema=schemas, seed=st.integers(0, 2**32))
def test_allowed_tokens_lead_to_a_valid_answer(
    fallback: Tokenizer, schema: dict[str, Any], seed: int
) -> None:
    """Also for a tokenizer that puts a space before every text."""
    grammar = start(Grammars(fallback.to_json, fallback.vocab_size, [EOS]), json_schema=schema)
    random = np.random.default_rng(seed)
    said = walk(grammar, lambda allowed: int(random.choice(allowed)))
    if grammar.complete:
        output = TextStream(fallback, whole=True)
        check(schema, output.push(said)[0] + output.flush())


@settings(max_examples=60)
@given(schema=schemas, data=st.data())
def test_state_depends_on_the_answer_tokens_only(
    grammars: Grammars, schema: dict[str, Any], data: st.DataObject
) -> None:
    """However it was reached: straight, rewound, or started again in the middle of a forced run."""
    random = np.random.default_rng(1)
    said = walk(start(grammars, json_schema=schema), lambda allowed: int(random.choice(allowed)), most=60)
    grammar = start(grammars, json_schema=schema)
    forced = []
    for token in said:
        forced.append(grammar.forced)
        grammar.consume(token)
    end = (grammar.complete, grammar.ended, grammar.forced)
    back = data.draw(st.integers(0, len(said)))
    grammar.rewind(back)
    cut = len(said) - back
    other = start(grammars, json_schema=schema)
    other.begin((), said[:cut])
    for place in (grammar, other):
        for token, expected in zip(said[cut:], forced[cut:], strict=True):
            assert place.forced == expected
            assert place.allowed()[token]
            place.consume(token)
        assert (place.complete, place.ended, place.forced) == end


VALUE = {"a": [1, {"b": "é 日本 🙂"}], 'c"\\\n\t': "\u0001 / ~"}
CLOSE = {"const": {"a": [1, 2]}, "x-guidance": {"item_separator": ",", "key_separator": ":"}}
TEXT = "the cat sat on the mat\n\tif x == 1: 日本🙂"


@pytest.mark.parametrize(
    ("structure", "text"),
    [
        ({"json_schema": {"const": VALUE}}, json.dumps(VALUE, ensure_ascii=False)),
        ({"json_schema": CLOSE}, '{"a":[1,2]}'),
        ({"grammar": f"start: {json.dumps(TEXT)}"}, TEXT),
    ],
    ids=["json as models write it", "another layout", "text"],
)
def test_forced_tokens_equal_those_of_the_tokenizer(
    grammars: Grammars, tokenizer: Tokenizer, structure: dict[str, Any], text: str
) -> None:
    assert walk(start(grammars, **structure), lambda allowed: allowed[0]) == tokenizer.encode(text)


def test_every_alternative_of_shared_prefixes_is_allowed(grammars: Grammars, tokenizer: Tokenizer) -> None:
    words = ["the", "then", "the cat", "the cat sat", "the cat sat on the mat"]
    grammar, random, said = start(grammars, json_schema={"enum": words}), np.random.default_rng(0), set()
    for _ in range(40):
        said.add(tokenizer.decode(walk(grammar, lambda allowed: int(random.choice(allowed)))))
        grammar.begin(())
    assert said == {json.dumps(word) for word in words}


def test_end_token_is_allowed_after_a_complete_answer(grammars: Grammars, tokenizer: Tokenizer) -> None:
    grammar = start(grammars, regex="[0-9]{1,3}")
    [digit] = tokenizer.encode("7")
    assert (grammar.complete, bool(grammar.allowed()[EOS])) == (False, False)
    grammar.consume(digit)
    assert (grammar.complete, grammar.ended, bool(grammar.allowed()[EOS])) == (True, False, True)
    grammar.consume(EOS)
    assert grammar.ended
    grammar.rewind(1)
    assert not grammar.ended
    grammar.consume(digit)
    grammar.consume(digit)
    assert grammar.ended


def test_micro_step_chooses_an_allowed_token_of_the_draft_vocab(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    one, x, two = (tokenizer.encode(letter)[0] for letter in "1x2")
    draft_vocab, scores = np.array([two, x, one]), np.array([0, 9, 1], dtype=np.float32)
    grammar = start(grammars, regex="[12]x?")
    sampler = Sampler(SamplingSettings(), tokenizer.vocab_size, draft_vocab, constraint=grammar)
    choices = [sampler.choose_micro(scores), sampler.choose_micro(scores)]
    assert [choice and choice.token for choice in choices] == [one, x]


def test_the_same_structure_is_compiled_once(grammars: Grammars) -> None:
    first = start(grammars, regex="[ab]c")
    compiled = grammars._newest
    walk(first, lambda allowed: allowed[0])
    second = start(grammars, regex="[ab]c")
    assert grammars._newest is compiled
    assert second.forced is None  # it begins at the beginning


# Dates and times are those of the calendar

DAY = {"type": "string", "format": "date"}


def read(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def test_dates_are_the_calendar_s() -> None:
    """llguidance's own pattern allows 0000-11-11 and 2023-02-29."""
    days = [f"{year:04d}-{day}" for year in range(10_000) for day in ("01-01", "02-28", "02-29", "12-31")]
    days += [
        f"{year}-{month:02d}-{day:02d}" for year in (2023, 2024) for month in range(100) for day in range(100)
    ]
    wrong = [day for day in days if bool(re.match(PATTERNS["date"], day)) != read(date.fromisoformat, day)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("23:59:59.123456789-23:59", True),
        ("09:30:00+01:00", True),
        ("24:00:00Z", False),
        ("23:59:60Z", False),
        ("12:60:00Z", False),
        ("12:00:00", False),
        ("12:00:00z", False),
        ("12:00:00.Z", False),
        ("12:00:00+24:00", False),
        ("12:00Z", False),
    ],
)
def test_times_have_a_zone_and_no_leap_second(text: str, allowed: bool) -> None:
    assert bool(re.match(PATTERNS["time"], text)) == allowed
    assert not allowed or read(time.fromisoformat, text)
    for day in ("2024-02-29", "2023-02-29"):
        found = bool(re.match(PATTERNS["date-time"], f"{day}T{text}"))
        assert found == (allowed and day == "2024-02-29")
        assert not found or read(datetime.fromisoformat, f"{day}T{text}")


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        (DAY, "2024-02-29", "0000-11-11"),  # a model's answer
        ({"format": "date", "pattern": "^2", "allOf": [{"pattern": "5$"}]}, "2024-02-25", "2024-02-29"),
        ({"format": "date", "pattern": "^2"}, "2024-02-29", "1996-02-29"),
        ({"$ref": "#/$defs/const", "$defs": {"const": DAY}}, "2000-02-29", "1900-02-29"),
        ({"anyOf": [{"type": "string", "format": "time"}, DAY]}, "12:00:00Z", "12:00:60Z"),
        ({"const": {"format": "date"}}, {"format": "date"}, "2024-02-29"),
        ({"properties": {"format": DAY}}, {"format": "2024-02-29"}, {"format": "2023-02-29"}),
    ],
)
def test_schema_accepts_valid_texts_only(
    grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any], allowed: Any, refused: Any
) -> None:
    def follows(value: Any) -> bool:
        grammar = start(grammars, json_schema=schema)
        try:
            for token in tokenizer.encode(json.dumps(value)):
                grammar.consume(token)
        except InputError:
            return False
        return grammar.complete

    assert (follows(allowed), follows(refused)) == (True, False)


def test_other_formats_and_values_stay() -> None:
    values = {"default": DAY, "enum": [DAY], "properties": 3}
    schema = {"items": {"format": "email"}, "format": ["date"], **values}
    assert rewritten(schema) == schema


# Integers end

INTEGER = {"type": "integer"}
PART = {"$ref": "#/$defs/part"}


@pytest.mark.parametrize(
    "schema",
    [
        INTEGER,
        {"type": "integer", "title": "Cups", "description": "of tea", "default": 2},
        {"type": ["integer", "null"]},
        {"type": "integer", "minimum": 1},
        {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 3},
        {"anyOf": [{"type": "null"}, INTEGER]},
        {"allOf": [{"minimum": 1}, PART], "$defs": {"part": INTEGER}},
        {**PART, "$defs": {"part": INTEGER, "integer": {"const": "a name that is taken"}}},
        {"type": "integer", "$id": "https://example.com/count"},
    ],
)
@pytest.mark.parametrize(
    "place", ["alone", "property", "further property", "item", "part of another document"]
)
def test_an_integer_without_limits_ends(
    grammars: Grammars, tokenizer: Tokenizer, schema: dict[str, Any], place: str
) -> None:
    """A model repeated one digit until its tokens ended."""
    definitions = {"$defs": schema.get("$defs", {})}
    inner = {key: part for key, part in schema.items() if key != "$defs"}
    another = {
        "$id": "https://example.com/another",
        "type": "object",
        "properties": {"n": inner},
        **definitions,
    }
    outer, start_of_answer = {
        "alone": (schema, ""),
        "property": (
            {"type": "object", "properties": {"n": inner}, "required": ["n"], **definitions},
            '{"n": ',
        ),
        "further property": ({"type": "object", "additionalProperties": inner, **definitions}, '{"n": '),
        "item": ({"type": "array", "items": inner, "minItems": 1, **definitions}, "["),
        "part of another document": ({"type": "object", "properties": {"a": another}}, '{"a": {"n": '),
    }[place]
    grammar = start(grammars, json_schema=outer)
    for token in tokenizer.encode(start_of_answer):
        grammar.consume(token)
    [digit] = tokenizer.encode("6")
    digits = 0
    while digits < 40 and grammar.allowed()[digit]:
        grammar.consume(digit)
        digits += 1
    assert digits == len(str(LARGEST_INTEGER))


def test_integers_with_limits_of_their_own_keep_them() -> None:
    schemas: list[dict[str, Any]] = [
        {"type": "integer", "minimum": -5, "exclusiveMaximum": 10**18},
        {"type": "integer", "const": 10**18},
        {"type": "integer", "enum": [1, 2]},
        {"type": "number"},
        {"type": ["integer", "number"]},
        {"type": "object", "properties": {"type": {"const": "integer"}}, "default": INTEGER},
    ]
    for schema in schemas:
        assert rewritten(schema) == schema
    assert rewritten({"type": "integer", "maximum": 9})["minimum"] == -LARGEST_INTEGER


def test_a_thousand_integers_can_be_compiled(grammars: Grammars) -> None:
    properties = {f"p{index}": INTEGER for index in range(1000)}
    start(grammars, json_schema={"type": "object", "properties": properties, "required": list(properties)})
