"""Goldens for runtimes in other languages: requests and this program's answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hamburger_edge
from hamburger_edge.model import Model
from helpers.toys.toy_bundles import MERGING, MERGING_GEMMA, PLAIN, PORTABLE, PORTABLE_BY_SLOT

PROMPTS = ("Où est le café?", "Name a fruit, 12 of them!", "x", "Say\n\nnothing <|im_end|> at all.")
MERGE: dict[str, Any] = {"confidence": 0.2, "mode": "merge"}
VERIFY: dict[str, Any] = {"confidence": 0.2, "mode": "verify"}
GREEDY: tuple[dict[str, Any], ...] = (
    {"confidence": 0.0, "mode": "merge"},
    {"confidence": 0.45, "mode": "merge"},
    {"confidence": 1.0, "mode": "merge"},
    {"confidence": 0.3, "mode": "verify"},
    {"confidence": 0.0, "mode": "verify"},
    {"confidence": 0.6, "mode": "hybrid", "top_probabilities": 3},
    {"confidence": 0.1, "mode": "hybrid", "stop": ["e", "qu"], "top_probabilities": 1},
    {**MERGE, "repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    {**MERGE, "stop": ["e", "qu"]},
    {},
)
SAMPLED: tuple[dict[str, Any], ...] = (
    {**MERGE, "temperature": 0.9, "seed": 1},
    {**MERGE, "temperature": 1.3, "top_k": 20, "seed": 2**32 + 3},
    {**MERGE, "temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.3, "seed": 4},
    {**MERGE, "temperature": 1.0, "min_p": 0.05, "logit_bias": dict.fromkeys([5, 66], -100), "seed": 5},
    {**VERIFY, "temperature": 0.7, "seed": 6, "logit_bias": {40: 2.5}},
    {**VERIFY, "temperature": 0.7, "top_k": 30, "top_p": 0.95, "seed": 7, "top_probabilities": 4},
    {"confidence": 0.6, "temperature": 0.8, "mode": "hybrid", "seed": 10},
    {"confidence": 1.0, "mode": "merge", "temperature": 0.7, "seed": 6},
)
# prompts that contain the model's own answer: it drafts by copying from them
REPEATED: tuple[dict[str, Any], ...] = (
    {"confidence": 0.3, "mode": "verify"},
    {"confidence": 0.3, "mode": "verify", "temperature": 0.7, "seed": 6},
    {"confidence": 0.6, "mode": "hybrid"},
)
# toy bundles of every kind a runtime must know, in pairs; with a stop head that is sure, mode hybrid merges
BUNDLES: tuple[dict[str, Any], ...] = (
    {"draft_vocab_size": 100},
    PORTABLE,
    {"position_rule": "slot", "precision": "int8"},
    PORTABLE_BY_SLOT,
    {"stop_rule": "after", "draft_vocab_size": 100, "precision": "int4", "stop_bias": -2.5},
    MERGING,
    MERGING_GEMMA,
    {**PLAIN, "precision": "int8"},
)
# each position rule and stop rule, with a draft vocabulary or none
LOOPS = (BUNDLES[0], BUNDLES[3], BUNDLES[4])
CALLS = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name, arguments in (
            ("add", {"type": "object", "properties": {"a": {"enum": [1, 22, 333]}}, "required": ["a"]}),
            ("take_note", {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}),
        )
    ]
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["age", "name"],
    "additionalProperties": False,
}
SWITCHES = {"type": "array", "items": {"type": "boolean"}, "maxItems": 3, "uniqueItems": True}
STRUCTURED: tuple[dict[str, Any], ...] = tuple(
    {**structure, **options}
    for structure in (
        {"json_schema": CALLS},
        {"json_schema": PERSON},
        {"regex": "(yes|no|maybe), [a-z]{3,8}!"},
        {"regex": "[0-9]{4}-[0-9]{2}(-[0-9]{2})?"},
        {"json_schema": {"schema": SWITCHES, "strict": False}},
    )
    for options in (
        {"confidence": 0.0, "mode": "merge"},
        {"confidence": 1.0, "mode": "merge"},
        {"confidence": 0.3, "mode": "verify"},
        {**MERGE, "temperature": 1.0, "seed": 8},
        {"confidence": 0.6, "mode": "hybrid"},
        {"confidence": 0.3, "mode": "hybrid"},
    )
)
# too long for one part: the structure goes on with the answer
STRUCTURED_TALKS: tuple[dict[str, Any], ...] = (
    {"regex": "(ab|[c-f])[a-z]{60}", "confidence": 0.3},
    {"regex": "[a-z]{20}forced[a-z]{60}", "mode": "verify", "temperature": 0.8, "seed": 3},
    {"regex": "[a-z]{9}forced and forced[a-z]{60}", "confidence": 0.1},
    {"regex": "[a-z]{9}forced and forced[a-z]{60}", "confidence": 0.6, "mode": "hybrid"},
    {"regex": "([a-z]{2}fo){20}", "confidence": 0.3, "mode": "hybrid"},
)
TURNS = ("Name a fruit.", "Another one.", "And why?")
TALKS: tuple[dict[str, Any], ...] = (
    {"confidence": 0.3, "mode": "merge"},
    VERIFY,
    {"mode": "hybrid", "confidence": 0.6},
    {"temperature": 0.8, "confidence": 0.1, "mode": "merge", "seed": 11},
)


def write_goldens(
    path: Path,
    bundle: Path,
    *,
    asked: Sequence[dict[str, Any]] = (*GREEDY, *SAMPLED),
    repeated: tuple[dict[str, Any], ...] = (),
    talks: tuple[dict[str, Any], ...] = TALKS,
    max_tokens: int = 30,
) -> int:
    """Answers and conversations of a bundle, options as JavaScript names them; how many groups of several
    tokens there are."""
    with hamburger_edge.load(bundle, threads=1) as model:
        answers = [
            _answer(model, prompt, {**options, "max_tokens": max_tokens})
            for options in asked
            for prompt in PROMPTS
        ]
        for prompt in PROMPTS if repeated else ():
            said = model.generate(prompt, confidence=1.0, max_tokens=60).tokens
            longer = [*model.encode(prompt), *said]
            answers += [_answer(model, longer, {**options, "max_tokens": max_tokens}) for options in repeated]
        told = [_talk(model, {**options, "max_tokens": max_tokens}) for options in talks]
        assert not talks or any(turn["goesOn"] for talk in told for turn in talk["turns"])
    path.write_text(json.dumps({"bundle": str(bundle), "answers": answers, "conversations": told}))
    return sum(len(group) > 1 for answer in answers for group in answer["groups"])


def _answer(model: Model, prompt: str | list[int], options: dict[str, Any]) -> dict[str, Any]:
    stream = model.stream(prompt, **options)
    chunks = [chunk for chunk in stream if chunk.tokens]
    said = {
        "groups": [chunk.tokens for chunk in chunks],
        "stops": [chunk.stop_probabilities for chunk in chunks],
        "top": [[[list(each) for each in top] for top in chunk.top_probabilities] for chunk in chunks],
        "text": stream.text,
        "finishReason": stream.finish_reason,
        "certainty": stream.certainty,
        "unsure": stream.unsure,
    }
    return {"prompt": prompt, "options": _camel(options), **said}


def _talk(model: Model, options: dict[str, Any]) -> dict[str, Any]:
    chat = model.chat("Be brief.", **options)
    turns: list[dict[str, Any]] = []
    for text in TURNS:
        chunks = list(chat.send(text))
        if goes_on := text == TURNS[1] and chat.unfinished:  # the middle answer is cut
            chunks += chat.continue_answer(max_tokens=7)
        groups = [list(chunk.tokens) for chunk in chunks]
        certainty, answer = chunks[-1].certainty, chat.messages[-1].text
        turns.append(
            {"text": text, "groups": groups, "goesOn": goes_on, "answer": answer, "certainty": certainty}
        )
    slots = [list(group) for group in chat.groups]
    return {"options": _camel(options), "turns": turns, "slots": slots}


def _camel(options: dict[str, Any]) -> dict[str, Any]:
    return {re.sub("_([a-z])", lambda m: m[1].upper(), name): value for name, value in options.items()}
