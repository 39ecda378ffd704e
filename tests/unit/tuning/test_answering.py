"""Answers of a base: those that it gives in training, and those that become training data."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from helpers.base_logits import logits_whole
from helpers.toys.toy_distillation import TURNS, toy_base
from helpers.toys.toy_models import toy_model
from helpers.toys.toy_tokenizers import byte_level

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.judges import Case, find_judge
from hamburger_edge.models.architecture.llama import Base, rotary_tables
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.updates.lora import add_lora
from hamburger_edge.tuning import more_answers
from hamburger_edge.tuning.judging.unfinished_answers import may_become_right
from hamburger_edge.tuning.judging.watching import AnswersRight, greedy
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


# Answers that end early, since no continuation is right


@pytest.mark.parametrize(
    ("judge", "expected", "right"),
    [
        ("exact", "Grüße aus 日本 🙂", " \nGrüße aus 日本 🙂\n \n"),
        ("calls", 'set_timer {"minutes": 5}\nstop', 'set_timer {"minutes": 5}\nstop\n'),
        ("fields", '{"a": 1, "b": ["ü", null]}', '\n{ "b" :\n[ "\\u00fc", null\n], "a" : 1.0}\n'),
        ("fields", "10", " 1e1 "),
        ("distance", "a", "quite another text"),
        ("python judge.py", "a", "quite another text"),
    ],
)
def test_every_beginning_of_a_right_answer_may_become_right(
    tmp_path: Path, judge: str, expected: str, right: str
) -> None:
    """Also one that ends within a character."""
    tokenizer = Tokenizer(byte_level(tmp_path))
    if judge in ("exact", "calls", "fields"):
        assert find_judge(judge)([Case("", expected, right)]).score == 1
    tokens = tokenizer.encode(right)
    for length in range(len(tokens) + 1):
        assert may_become_right(judge, tokenizer.decode(tokens[:length]), expected)


@pytest.mark.parametrize(
    ("judge", "begun", "expected"),
    [
        ("exact", "ab", "ac"),
        ("exact", "ac ac", "ac"),
        ("calls", "stop\nstop", "stop"),
        ("fields", "The answer", '{"a": 1}'),
        ("fields", '{"a": 1} and', '{"a": 1}'),
        ("fields", '{"a": "' + 20 * "more ", '{"a": 1}'),
        ("fields", "{", "no JSON"),
    ],
)
def test_answer_that_no_continuation_makes_right_ends(judge: str, begun: str, expected: str) -> None:
    assert not may_become_right(judge, begun, expected)
    assert find_judge(judge)([Case("", expected, begun)]).score == 0


@torch.no_grad()
@pytest.mark.parametrize("judge", ["exact", "fields"])
def test_share_of_right_answers_takes_no_longer_than_the_right_ones(tmp_path: Path, judge: str) -> None:
    """A base that ended no answer once took as many steps as the longest answer allows."""
    tokenizer, model, longest = Tokenizer(byte_level(tmp_path)), toy_model(vocab_size=320), 90
    prompts = [(5, 9, 2, 7), (3,), (11, 4, 4, 8, 1, 6), (20, 21), (30, 31, 32)]
    end = greedy(model, prompts[:1], -1, 8)[0][7]
    texts = [tokenizer.decode(answer) for answer in greedy(model, prompts, end, longest)]
    expected = [texts[0] if judge == "exact" else '{"a": 1}', *['{"a": 1}'] * 4]
    assert any(len(text) > 60 for text in texts[1:])
    requests = [Request(ids, "", answer) for ids, answer in zip(prompts, expected, strict=True)]
    steps = list[int]()
    model.base.norm.register_forward_hook(lambda module, args, output: steps.append(len(output)))
    watch = AnswersRight(
        requests, judge, tokenizer, end=end, longest=longest, autocast=lambda device: nullcontext()
    )
    cases = [Case("", *pair) for pair in zip(expected, texts, strict=True)]
    assert watch(model) == {"right": find_judge(judge)(cases).score}
    assert len(steps) <= 6 + 8
    assert steps[0] == 5
    assert steps[-1] < 5  # rows of finished answers leave the batch
