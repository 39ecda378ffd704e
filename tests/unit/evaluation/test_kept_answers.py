"""An evaluation that was stopped goes on, with the figures of one that was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.asking import PLAIN, Request, Row, evaluate
from hamburger_edge.evaluation.judges import exact
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.model import Model

SETTINGS = (PLAIN, Recommended.of("merge"), Recommended.of("verify"))
REQUESTS = [Request(tuple(range(5, 8 + n)), f"{n}", "") for n in range(4)]


class Stopped(Exception):
    pass


def rows(
    model: Model, kept: Path | None, requests: Sequence[Request] = REQUESTS, stop: int = -1
) -> list[Row]:
    """Stopped after so many requests."""

    def progress(stage: str, done: int, total: int, note: str = "") -> None:
        heard.append((done, total, note))
        if done == stop:
            raise Stopped

    heard: list[tuple[int, int, str]] = []
    found = evaluate(model, requests, exact, SETTINGS, max_tokens=6, kept=kept, progress=progress)
    assert heard[-1][:2] == (len(requests), len(requests))
    assert all(note.endswith("s left") for done, _, note in heard if done)
    return [replace(row, milliseconds=(0, 0, 0), faster=1) for row in found]


def test_stopped_evaluation_continues_with_the_next_request(model: Model, tmp_path: Path) -> None:
    """Stop it between requests, then in the middle of a line, whose request is repeated."""
    kept = tmp_path / "answers.jsonl"
    unbroken = rows(model, None)
    assert unbroken[0].tokens > 3
    for stop in (1, 3):
        with pytest.raises(Stopped):
            rows(model, kept, stop=stop)
        assert len(kept.read_text().splitlines()) == 1 + stop
    before = kept.read_bytes()
    assert rows(model, kept) == unbroken
    whole = kept.read_bytes()
    assert whole.startswith(before)  # no request was repeated
    for end in (20, len(whole) - 400, len(whole) - 1, len(whole)):
        kept.write_bytes(whole[:end])
        assert rows(model, kept) == rows(model, kept) == unbroken
        assert kept.read_bytes().count(b"\n") == 1 + len(REQUESTS)


def test_answers_to_something_else_are_refused(model: Model, tmp_path: Path) -> None:
    kept = tmp_path / "answers.jsonl"
    rows(model, kept)
    whole = kept.read_bytes()
    with pytest.raises(InputError, match=r"answers\.jsonl: holds answers to other questions"):
        rows(model, kept, REQUESTS[:2])
    for damaged in (b"1\n", b"[]\n", whole + whole[-1:], whole + b"[[1]]\n", whole + b'"abc"\n'):
        kept.write_bytes(damaged)
        with pytest.raises(InputError, match="delete it to begin anew"):
            rows(model, kept)
        assert kept.read_bytes() == damaged  # the answers of hours are kept
