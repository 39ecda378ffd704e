"""Read the examples of a task, one conversation each.

{"prompt": "Play jazz", "answer": "{\\"intent\\": ...}"}      JSON lines; "system" is optional
{"prompt": "Lights on", "calls": [{"name": ..., "arguments": {...}}]}       JSON lines of a model with tools
{"messages": [{"role": "user", "content": "..."}, ...]}     JSON lines in the format of fine-tuning services
prompt,answer                                               CSV with these columns (and "system"); Parquet

JSON lines may be compressed, as .jsonl.gz, or come from a command.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue
from hamburger_edge.errors import InputError, require
from hamburger_edge.support.files import TEXT, open_regular
from hamburger_edge.support.strict import decode_line, only_keys, read_lines
from hamburger_edge.support.values import check_text, safe_repr
from hamburger_edge.tuning.data.call_examples import calls_as_text, catalogue_of
from hamburger_edge.tuning.data.example_command import command_lines

COLUMNS = ("prompt", "answer", "system")
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}  # of files that are named .csv too


@dataclass(frozen=True)
class Turn:
    prompt: str
    answer: str
    learned: bool = True  # False: context only, not a training target


@dataclass(frozen=True)
class Example:
    turns: tuple[Turn, ...]
    system: str | None = None

    @property
    def asked(self) -> tuple[Any, ...]:
        """Everything except the last answer."""
        return self.system, self.turns[:-1], self.turns[-1].prompt

    @property
    def answer(self) -> str:
        return self.turns[-1].answer

    @property
    def single(self) -> bool:
        return len(self.turns) == 1 and self.system is None


@dataclass(frozen=True)
class Examples:
    examples: tuple[Example, ...]
    duplicates: int = 0  # left out
    contradictions: int = 0  # kept: an earlier example has the same prompt and another answer
    catalogue: Catalogue | None = None  # of examples whose answers are calls

    def __str__(self) -> str:
        told = f"{len(self.examples)} examples"
        if self.duplicates:
            told += f", {self.duplicates} duplicates left out"
        if self.contradictions:
            told += f", {self.contradictions} that answer otherwise what was asked before"
        return told


def read_examples(path: Path, catalogue: Catalogue | None = None) -> Examples:
    """Read a file of examples. Errors name the line or row.

    With a catalogue, or with tools in the rows, every answer is a list of calls in the compact form.
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    return _distinct(readers.get(path.suffix.lower(), _read_json_lines)(path), str(path), catalogue)


def read_command_examples(command: str, limit: int, catalogue: Catalogue | None = None) -> Examples:
    """Read the first `limit` lines of JSON that a command writes. Errors name the line."""
    lines = ((where, line) for where, line in command_lines(command, limit) if line.strip())
    return _distinct(
        ((where, decode_line(line, where)) for where, line in lines), f"examples {command}", catalogue
    )


def _distinct(lines: Iterable[tuple[str, Any]], source: str, catalogue: Catalogue | None) -> Examples:
    distinct: dict[Example, None] = {}
    answers: dict[tuple[Any, ...], str] = {}
    read = contradictions = 0
    rows = list(lines)
    catalogue = catalogue_of(rows, catalogue)
    for where, row in rows:
        data = row if catalogue is None else calls_as_text(row, catalogue, where)
        example = _example(data, where)
        read += 1
        if example not in distinct:
            contradictions += answers.setdefault(example.asked, example.answer) != example.answer
            distinct[example] = None
    if not distinct:
        raise InputError(
            f'{source}: holds no examples: write one {{"prompt": "...", "answer": "..."}} a line'
        )
    return Examples(tuple(distinct), read - len(distinct), contradictions, catalogue)


def _read_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for where, line in read_lines(path):
        yield where, decode_line(line, where)


def _read_csv(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with io.TextIOWrapper(open_regular(path, limit=TEXT), encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            _check_separator(header, path)
            for number, row in enumerate(csv.DictReader(itertools.chain([header], file), strict=True), 1):
                if None in row or None in row.values():
                    raise InputError(
                        f"{path}, row {number}: has another number of fields than the first line"
                    )
                # an empty system field means no system text
                yield f"{path}, row {number}", {n: t for n, t in row.items() if t or n != "system"}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): give a file of examples") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except csv.Error as error:
        raise InputError(f"{path}: not CSV ({error})") from error


def _check_separator(header: str, path: Path) -> None:
    for separator, name in SEPARATORS.items():
        columns = next(csv.reader([header], delimiter=separator), [])
        if {"prompt", "answer"} <= set(columns):
            raise InputError(f"{path}: its columns are separated by {name}: save it with commas")


def _read_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    datasets = require("datasets", "datasets")
    if not path.is_file():
        raise InputError(f"{path}: cannot be read (no such file): give a file of examples")
    try:
        table = datasets.Dataset.from_parquet(str(path))
    except Exception as error:  # pyarrow raises many types
        raise InputError(f"{path}: not Parquet ({type(error).__name__})") from error
    for number, row in enumerate(table, 1):
        # every row has every column; None means absent
        yield f"{path}, row {number}", {name: value for name, value in row.items() if value is not None}


def _example(data: Any, where: str) -> Example:
    if not isinstance(data, Mapping):
        raise InputError(f'{where}: expected {{"prompt": ..., "answer": ...}}, got {safe_repr(data)}')
    if "messages" in data:
        only_keys(data, ("messages",), where)
        return _of_messages(data["messages"], where)
    only_keys(data, COLUMNS, where)
    for name in ("prompt", "answer"):
        if name not in data:
            raise InputError(f"{where}: has no {name}")
    system = _text(data["system"], f"{where}: system") if data.get("system") else None
    prompt, answer = (_text(data[name], f"{where}: {name}") for name in ("prompt", "answer"))
    return Example((Turn(prompt, answer),), system)


def _of_messages(messages: Any, where: str) -> Example:
    """Read a list of messages: an optional system message, then alternating user and assistant messages.

    A message with "weight": 0 is not a training target.
    """
    if not isinstance(messages, list) or not messages:
        raise InputError(f"{where}: messages must be a list, got {safe_repr(messages)}")
    checked: list[tuple[str, str, bool]] = []  # role, text, whether it is a training target
    for number, message in enumerate(messages):
        here = f"{where}: messages[{number}]"
        if not isinstance(message, Mapping):
            raise InputError(f"{here} must be an object, got {safe_repr(message)}")
        only_keys(message, ("role", "content", "weight"), here)
        if (role := message.get("role")) not in ("system", "user", "assistant"):
            raise InputError(f"{here}.role must be system, user or assistant, got {safe_repr(role)}")
        if (weight := message.get("weight", 1)) not in (0, 1):
            raise InputError(f"{here}.weight must be 0 or 1, got {safe_repr(weight)}")
        checked.append((role, _text(message.get("content"), f"{here}.content"), bool(weight)))
    system = checked.pop(0)[1] if checked[0][0] == "system" else None
    roles = [role for role, _, _ in checked]
    if roles != ["user", "assistant"] * (len(roles) // 2) or not roles:
        raise InputError(f"{where}: messages must go user, assistant in turn and end with the assistant's")
    pairs = zip(checked[::2], checked[1::2], strict=True)
    turns = tuple(Turn(user, answer, learned) for (_, user, _), (_, answer, learned) in pairs)
    if not any(turn.learned for turn in turns):
        raise InputError(f"{where}: every answer has weight 0: leave the line out")
    return Example(turns, system)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where} must be a text, got {safe_repr(value)}")
    try:
        return check_text(value)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
