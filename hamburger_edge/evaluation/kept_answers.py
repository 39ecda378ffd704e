"""Store the answers of an evaluation in a file, so that a stopped evaluation resumes.

{"asked": ...}             the inputs of the answers
[[text, seconds, ...], ...]    one line per request: an answer at every setting
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.errors import InputError
from hamburger_edge.support.cache import lock_for
from hamburger_edge.support.files import locked, read_regular


@dataclass(frozen=True)
class Answer:
    text: str
    seconds: float
    tokens: int
    steps: int
    slots: int  # of the answer, without the prompt's


Answered = list[Answer]  # one request's answers, one per setting


class KeptAnswers:
    """The answers so far, one row per request. Without a path they stay in memory."""

    def __init__(self, path: Path | None, identity: Any, requests: int, settings: int) -> None:
        self.path = path
        self.rows: list[Answered] = []
        if path is None:
            return
        first, whole = _line({"asked": identity}), b""
        if path.exists():
            whole, _, _ = read_regular(path).rpartition(b"\n")  # a killed run may leave a partial last line
        head, *lines = [line + b"\n" for line in whole.split(b"\n")] if whole else [first]
        try:
            self.rows = [_answered(line, settings) for line in lines]
            other = head != first or len(self.rows) > requests
        except (TypeError, ValueError):
            other = True
        if other:
            raise InputError(
                f"{path}: holds answers to other questions, or of another model: delete it to begin anew"
            )
        with open(path, "ab") as file:
            file.truncate(sum(map(len, (head, *lines))) if whole else 0)
            if not whole:
                file.write(first)

    def add(self, answered: Answered) -> None:
        self.rows.append(answered)
        if self.path is not None:
            with open(self.path, "ab") as file:
                file.write(_line([astuple(answer) for answer in answered]))


@contextmanager
def keeping(path: Path | None, identity: Any, requests: int, settings: int) -> Iterator[KeptAnswers]:
    """Open the kept answers under a lock: one process at a time."""
    with nullcontext() if path is None else locked(lock_for(path.absolute())):
        yield KeptAnswers(path, identity, requests, settings)


def _line(content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"  # ASCII without line feeds


def _answered(line: bytes, settings: int) -> Answered:
    answered = [Answer(*fields) for fields in json.loads(line)]
    if len(answered) != settings:
        raise ValueError(f"{len(answered)} answers")
    return answered
