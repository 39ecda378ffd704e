"""Score answers from 0 to 1 against the expected ones.

exact      1 if the texts are equal after stripping white space
fields     1 if the JSON is equal; also precision, recall and F1 of its fields
distance   1 - edit distance / length of the longer text
calls      1 if all calls of a model with tools are right; also the shares with the right functions, and with
           the right arguments among those
a command  reads {"prompt", "expected", "answer"} a line and writes a number a line; `python` runs in the
           current interpreter
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hamburger_edge.errors import InputError, require
from hamburger_edge.evaluation.checks import Check
from hamburger_edge.support.command_line import last_line, split_command
from hamburger_edge.support.files import sha256
from hamburger_edge.support.strict import canonical_json

NAMES = ("exact", "fields", "distance", "calls")


@dataclass(frozen=True)
class Case:
    prompt: str
    expected: str
    answer: str
    check: Check | None = None
    kind: str = ""


@dataclass(frozen=True)
class Judgement:
    scores: tuple[float, ...]  # one per answer
    figures: dict[str, float] = field(default_factory=dict)  # over all answers

    @property
    def score(self) -> float:
        return sum(self.scores) / max(1, len(self.scores))


Judge = Callable[[Sequence[Case]], Judgement]


def find_judge(name: str) -> Judge:
    """Return the judge with this name, or a judge that runs `name` as a command line."""
    own = {"exact": exact, "fields": fields_equal, "distance": distance, "calls": calls_right}
    if name in own:
        return own[name]
    command = _command(name)
    return lambda cases: _ask(command, cases)


def judge_files(name: str) -> list[str]:
    """Return hashes of the files in a judge's command, so that a changed script counts as another judge."""
    if name in NAMES:
        return []
    command = _command(name)
    files = [Path(word) for word in command[1:]]
    if command[1:2] == ["-m"]:  # the command's own interpreter locates the module
        find = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).origin)"
        completed = subprocess.run([command[0], "-c", find, *command[2:3]], capture_output=True, text=True)
        files.append(Path(completed.stdout.strip() or "-"))
    return [sha256(file) for file in files if file.is_file()]


def _command(name: str) -> list[str]:
    try:
        command = split_command(name)
    except ValueError as error:
        raise InputError(
            f"judge {name!r} is no command line ({error}), nor one of {', '.join(NAMES)}"
        ) from error
    if len(command) < 2:
        raise InputError(
            f"judge {name!r} is unknown: take {', '.join(NAMES)}, or a command: 'python judge.py'"
        )
    return command


def fitting_judge(answers: Sequence[str]) -> str:
    """Return "fields" if all answers are JSON objects, else "exact"."""
    objects = ((canonical_json(text) or "").startswith("{") for text in answers)
    return "fields" if answers and all(objects) else "exact"


def exact(cases: Sequence[Case]) -> Judgement:
    return Judgement(tuple(float(case.answer.strip() == case.expected.strip()) for case in cases))


def fields_equal(cases: Sequence[Case]) -> Judgement:
    """Compare JSON by fields. A field is a path and its value; all items of a list share one path."""
    scores: list[float] = []
    both = generated = wanted = valid = 0
    for case in cases:
        answer, expected = canonical_json(case.answer), canonical_json(case.expected)
        ours, theirs = Counter(_fields_of(answer)), Counter(_fields_of(expected))
        valid += answer is not None
        both += (ours & theirs).total()
        generated += ours.total()
        wanted += theirs.total()
        scores.append(float(answer is not None and answer == expected))
    figures = {
        "valid": valid / max(1, len(cases)),
        "field_precision": both / max(1, generated),
        "field_recall": both / max(1, wanted),
        "field_f1": 2 * both / max(1, generated + wanted),
    }
    return Judgement(tuple(scores), figures)


def distance(cases: Sequence[Case]) -> Judgement:
    near = tuple(
        1 - edits(case.answer, case.expected) / max(1, len(case.answer), len(case.expected)) for case in cases
    )
    return Judgement(near, {"exact": exact(cases).score})


def calls_right(cases: Sequence[Case]) -> Judgement:
    """Compare calls in the compact form, in their order."""
    scores = exact(cases).scores
    functions = [functions_of(case.answer) == functions_of(case.expected) for case in cases]
    arguments = [score for score, is_right in zip(scores, functions, strict=True) if is_right]
    figures = {
        "functions": sum(functions) / max(1, len(cases)),
        "arguments": sum(arguments) / max(1, len(arguments)),
    }
    return Judgement(scores, figures)


def functions_of(answer: str) -> list[str]:
    """Return the names of the called functions of an answer in the compact form."""
    return [line.split(" ", 1)[0] for line in answer.split("\n")]


def checked(cases: Sequence[Case]) -> Judgement:
    """Score 1 for an answer that passes its prompt's check. The figures are accuracies by kind."""
    scores = tuple(float(case.check is not None and case.check.passes(case.answer)) for case in cases)
    kinds: dict[str, list[float]] = {}
    for case, score in zip(cases, scores, strict=True):
        kinds.setdefault(case.kind, []).append(score)
    return Judgement(scores, {kind: sum(values) / len(values) for kind, values in kinds.items()})


class Validator:
    """Whether answers follow a JSON schema, by the package jsonschema."""

    def __init__(self, schema: str):
        jsonschema = require("jsonschema", "bench")
        parsed = json.loads(schema)
        kind = jsonschema.validators.validator_for(parsed)
        try:
            kind.check_schema(parsed)
        except jsonschema.SchemaError as error:
            raise InputError(f"the JSON schema is not one: {error.message}") from error
        self._validator = kind(parsed)

    def accepts(self, text: str) -> bool:
        try:
            return bool(self._validator.is_valid(json.loads(text)))
        except (ValueError, RecursionError):
            return False


def equal(text: str, expected: str) -> bool:
    """Compare as JSON if `expected` is JSON, else as text without surrounding white space."""
    wanted = canonical_json(expected)
    return text.strip() == expected.strip() if wanted is None else canonical_json(text) == wanted


def edits(one: str, other: str) -> int:
    """Return the Levenshtein distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


def _fields_of(canonical: str | None) -> Iterator[tuple[tuple[str, ...], str]]:
    return iter(()) if canonical is None else _fields(json.loads(canonical))


def _fields(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _fields(part, (*path, name))
    elif isinstance(value, list) and value:
        for part in value:
            yield from _fields(part, (*path, "[]"))
    else:
        yield path, json.dumps(value, sort_keys=True)


def _ask(command: Sequence[str], cases: Sequence[Case]) -> Judgement:
    shown = shlex.join(command)
    told = ({name: getattr(case, name) for name in ("prompt", "expected", "answer")} for case in cases)
    lines = "".join(json.dumps(fields, ensure_ascii=False) + "\n" for fields in told)
    try:
        done = subprocess.run(command, input=lines, capture_output=True, text=True, encoding="utf-8")
    except OSError as error:
        raise InputError(f"judge {shown}: cannot be run ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"judge {shown}: wrote what is not UTF-8 text") from error
    if done.returncode:
        raise InputError(f"judge {shown}: ended with status {done.returncode}: {last_line(done.stderr)}")
    words = done.stdout.split()
    if len(words) != len(cases):
        raise InputError(
            f"judge {shown}: wrote {len(words)} numbers for {len(cases)} lines: one each, 0 to 1"
        )
    return Judgement(tuple(_score(word, shown) for word in words))


def _score(word: str, shown: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise InputError(f"judge {shown}: wrote {word[:40]!r}: a number from 0 to 1 is expected")
    return value
