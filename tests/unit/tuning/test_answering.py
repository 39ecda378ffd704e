"""Answers of a base: those that it gives in training, and those that become training data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.base_logits import logits_whole
from helpers.toys.toy_distillation import TURNS, toy_base
from helpers.toys.toy_models import toy_model

from hamburger_edge.models.architecture.llama import Base, rotary_tables
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.updates.lora import add_lora
from hamburger_edge.tuning import more_answers
from hamburger_edge.tuning.judging.watching import greedy
from hamburger_edge.tuning.more_answers import write_answers

QUESTIONS = [[1, 5 + number, *range(20, 20 + number % 4)] for number in range(30)]
LONGEST = 24


def likeliest(base: Base, question: list[int], end: int = TURNS.end, longest: int = LONGEST) -> list[int]:
    """The answer with its end, a whole forward pass a token."""
    tables = rotary_tables(base.config, 64)
    answer = list[int]()
    while len(answer) < longest and answer[-1:] != [end]:
        answer.append(int(logits_whole(base, tables, torch.tensor([question + answer]))[0, -1].argmax()))
    return answer


def written(base: Base, folder: Path, source: str = "toy") -> DistilledData:
    write_answers(
        base, QUESTIONS, folder, {"base": source}, end=TURNS.end, longest=LONGEST, dtype=torch.float32
    )
    return DistilledData.load(folder)


def test_answers_are_greedy_and_endless_ones_are_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(more_answers, "ROWS", 4)
    base = toy_base()
    answers = ((question, likeliest(base, question)) for question in QUESTIONS)
    expected = [(question, answer) for question, answer in answers if answer[-1] == TURNS.end]
    assert 0 < len(expected) < len(QUESTIONS)
    data = written(base, tmp_path)
    assert len(data) == len(expected)
    for start, (question, answer) in zip(data.starts, expected, strict=False):
        span = slice(start, start + len(question) + len(answer))
        assert data.ids[span].tolist() == question + answer
        said = data.roles[span] == ANSWER
        assert said.tolist() == [False] * len(question) + [True] * len(answer)
        assert data.top_ids[span][said, 0].tolist() == answer


def test_stopped_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(more_answers, "PORTION", 8)
    base = toy_base()
    whole = written(base, tmp_path)
    shards = sorted(tmp_path.glob("answers-*.safetensors"))
    assert len(shards) == 4
    kept = shards[0].stat().st_mtime_ns
    shards[1].write_bytes(b"damaged")
    assert written(base, tmp_path).sha256 == whole.sha256
    assert shards[0].stat().st_mtime_ns == kept
    written(base, tmp_path, source="another")
    assert shards[0].stat().st_mtime_ns != kept


@torch.no_grad()
def test_batched_answers_equal_single_answers() -> None:
    """With an update in training, which must not be folded in or rounded by a look."""
    torch.manual_seed(1)
    model = toy_model()
    for parameter in add_lora(model.base.layers, 2):
        parameter.normal_(std=0.3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    prompts = [[5, 9, 2, 7], [3], [11, 4, 4, 8, 1, 6]]
    end = likeliest(model.base, prompts[0], -1, 6)[3]  # so that one answer ends early
    expected = [likeliest(model.base, prompt, end, 6) for prompt in prompts]
    assert len(expected[0]) <= 4
    assert max(map(len, expected)) == 6
    without_end = [[token for token in answer if token != end] for answer in expected]
    assert greedy(model, prompts, end, 6) == without_end
    after = model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
