"""The base's own answers, as training data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from base_logits import logits_whole
from toy_distillation import TURNS, toy_base

from hamburger_edge.models.architecture.llama import Base, rotary_tables
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.tuning import more_answers
from hamburger_edge.tuning.more_answers import write_answers

QUESTIONS = [[1, 5 + number, *range(20, 20 + number % 4)] for number in range(30)]
LONGEST = 24


def written(base: Base, folder: Path, source: str = "toy") -> DistilledData:
    write_answers(
        base, QUESTIONS, folder, {"base": source}, end=TURNS.end, longest=LONGEST, dtype=torch.float32
    )
    return DistilledData.load(folder)


def likeliest(base: Base, question: list[int]) -> list[int]:
    """Question and answer, a whole forward pass a token."""
    tables = rotary_tables(base.config, 64)
    ids = list(question)
    while len(ids) < len(question) + LONGEST and ids[-1] != TURNS.end:
        ids.append(int(logits_whole(base, tables, torch.tensor([ids]))[0, -1].argmax()))
    return ids


def test_answers_are_the_likeliest_and_those_that_do_not_end_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(more_answers, "ROWS", 4)
    base = toy_base()
    expected = [(q, ids) for q in QUESTIONS if (ids := likeliest(base, q))[-1] == TURNS.end]
    assert 0 < len(expected) < len(QUESTIONS)
    data = written(base, tmp_path)
    found = [data.ids[a:b].tolist() for a, b in zip(data.starts[:-1], data.starts[1:], strict=True)]
    assert found == [ids for _, ids in expected]
    for start, (question, ids) in zip(data.starts, expected, strict=False):
        roles = data.roles[start : start + len(ids)]
        assert (roles == ANSWER).tolist() == [False] * len(question) + [True] * (len(ids) - len(question))
        answer = slice(start + len(question), start + len(ids))
        assert data.top_ids[answer, 0].tolist() == ids[len(question) :]


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(more_answers, "PORTION", 8)
    base = toy_base()
    whole = written(base, tmp_path)
    shards = sorted(tmp_path.glob("answers-*.safetensors"))
    assert len(shards) == 4
    kept = shards[0].stat().st_mtime_ns
    shards[1].write_bytes(b"damaged")
    again = written(base, tmp_path)
    assert again.sha256 == whole.sha256
    assert shards[0].stat().st_mtime_ns == kept
    written(base, tmp_path, source="another")
    assert shards[0].stat().st_mtime_ns != kept
