"""Text that calibration reads, in batches as the model is used: prompts token by token, answers in groups.

The text is the checkpoint's own, or `calibration.jsonl` (questions with SmolLM2's answers). Ranges also come
from `other_text.jsonl`: other languages, code and tables, token by token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.loop.ledger import Group
from hamburger_edge.models.architecture.hamburger import GroupBatch
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    read_calibration,
    to_fit,
    to_judge,
)
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint

TEXT = Path(__file__).with_name("calibration.jsonl")
OTHER_TEXT = Path(__file__).with_name("other_text.jsonl")
ROWS, LONGEST = 4, 224  # conversations read together; tokens of each

Conversation = tuple[list[Group], list[Group]]  # prompt, answer


def calibration_texts(checkpoint: Checkpoint) -> Iterator[Conversation]:
    """Yield the conversations to fit weights and cache ranges to."""
    yield from _encoded(checkpoint, to_fit(read_calibration(_text_of(checkpoint))))


def judging_texts(checkpoint: Checkpoint) -> Iterator[Conversation]:
    """Yield conversations of the same kind that nothing is fitted to."""
    kept = to_judge(read_calibration(_text_of(checkpoint)))
    yield from _encoded(checkpoint, kept or to_judge(read_calibration(TEXT)))


def _text_of(checkpoint: Checkpoint) -> Path:
    return checkpoint.file(CALIBRATION) or TEXT


def _encoded(checkpoint: Checkpoint, text: list[CalibrationExample]) -> Iterator[Conversation]:
    """Encode conversations in the model's own template: the prompt token by token, and the answer in groups
    of 1, 2, ... max_group_tokens, 1, ..."""
    config = checkpoint.model.config
    tokenizer = Tokenizer(checkpoint.tokenizer)
    template = ChatTemplate.from_json(checkpoint.chat_template)
    longest = min(LONGEST, config.base.context_length)
    for example in text:
        prompt = tokenizer.encode_parts(template.first_turn(example.prompt, example.system))[: longest // 2]
        answer = tokenizer.encode(example.answer)[: longest - len(prompt)]
        if prompt and answer:
            yield [(token,) for token in prompt], list(_cut(answer, config.max_group_tokens))


def calibration_batches(checkpoint: Checkpoint, every: int = 1) -> Iterator[GroupBatch]:
    """One conversation in so many."""
    yield from _batches(list(calibration_texts(checkpoint))[::every], checkpoint)


def other_batches(checkpoint: Checkpoint) -> Iterator[GroupBatch]:
    """Yield the other text as prompts without answers."""
    tokenizer = Tokenizer(checkpoint.tokenizer)
    longest = min(LONGEST, checkpoint.model.config.base.context_length)
    texts = (json.loads(line)["text"] for line in OTHER_TEXT.read_text(encoding="utf-8").splitlines())
    prompts: list[list[Group]] = [[(token,) for token in tokenizer.encode(text)[:longest]] for text in texts]
    yield from _batches([(prompt, []) for prompt in prompts if prompt], checkpoint)


def _batches(rows: list[tuple[list[Group], list[Group]]], checkpoint: Checkpoint) -> Iterator[GroupBatch]:
    rows.sort(key=lambda row: len(row[0]) + len(row[1]))  # rows of a batch are padded to the longest
    for start in range(0, len(rows), ROWS):
        yield _batch(rows[start : start + ROWS], checkpoint.model.config.max_group_tokens)


def _cut(tokens: list[int], max_group_tokens: int) -> Iterator[Group]:
    size = 1
    while tokens:
        yield tuple(tokens[:size])
        tokens, size = tokens[size:], size % max_group_tokens + 1


def _batch(rows: list[tuple[list[Group], list[Group]]], longest: int) -> GroupBatch:
    """Right-pad rows; every slot from the prompt's last on predicts the following group."""
    slots = max(len(prompt) + len(groups) for prompt, groups in rows)
    shape = (len(rows), slots)
    tokens, following = (torch.zeros(*shape, longest, dtype=torch.long) for _ in range(2))
    sizes, to_predict = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
    for row, (prompt, groups) in enumerate(rows):
        for slot, group in enumerate([*prompt, *groups]):
            tokens[row, slot, : len(group)] = torch.tensor(group)
            sizes[row, slot] = len(group)
        first, last = len(prompt), len(prompt) + len(groups)
        following[row, first - 1 : last - 1] = tokens[row, first:last]
        to_predict[row, first - 1 : last - 1] = sizes[row, first:last]
    return GroupBatch(tokens, sizes, following, to_predict)
