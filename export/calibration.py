"""What a model's layers are fed: the statistics that let 4-bit weights make up for each other's errors.

A layer's output error for weight errors e is  e^T M e,  with M the mean of x x^T over its inputs x. The
moments M come from reading `calibration.jsonl`, questions and SmolLM2's own answers, through the model as it
will be used: prompts token by token, answers in groups of every length.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from hamburger_edge.chat import ChatTemplate
from hamburger_edge.models.checkpoint import Checkpoint
from hamburger_edge.models.hamburger import GroupBatch, Hamburger
from hamburger_edge.tokenizer import Tokenizer

TEXT = Path(__file__).with_name("calibration.jsonl")
ROWS, LONGEST = 4, 224  # conversations read at once; tokens of each


def measure_inputs(
    checkpoint: Checkpoint, layers: Collection[str], progress: Callable[[int, int], None]
) -> dict[str, Tensor]:
    """Layer -> moments [K, K] of its inputs; nothing for layers that reading does not reach."""
    batches = list(calibration_batches(checkpoint))
    moments = _Moments(checkpoint.model, layers)
    try:
        for number, batch in enumerate(batches):
            progress(number, len(batches))
            with torch.no_grad():
                checkpoint.model(batch)
    finally:
        moments.close()
    return moments.means()


class _Moments:
    """Sums x x^T before every chosen linear layer; layers fed by the same tensor share one sum."""

    def __init__(self, model: Hamburger, layers: Collection[str]):
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.owner: dict[str, str] = {}  # layer -> the first one fed the same
        self.latest: tuple[Tensor, str] | None = None
        self.hooks = [
            module.register_forward_pre_hook(self._hook(name))
            for name, module in model.named_modules()
            if name in layers
        ]

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def add(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            (x,) = inputs
            if self.latest is not None and self.latest[0] is x:
                self.owner[name] = self.latest[1]
                return
            self.latest, self.owner[name] = (x, name), name
            rows = x.reshape(-1, x.shape[-1]).float()
            if name not in self.sums:
                self.sums[name] = torch.zeros(rows.shape[1], rows.shape[1])
            self.sums[name].addmm_(rows.T, rows)
            self.counts[name] = self.counts.get(name, 0) + len(rows)

        return add

    def means(self) -> dict[str, Tensor]:
        means = {name: total.div_(self.counts[name]) for name, total in self.sums.items()}
        return {name: means[owner] for name, owner in self.owner.items()}

    def close(self) -> None:
        self.latest = None
        for hook in self.hooks:
            hook.remove()


def calibration_batches(checkpoint: Checkpoint) -> Iterator[GroupBatch]:
    """Conversations in the model's own template; answers cut into groups of 1, 2, ... max_steps, 1, ..."""
    config = checkpoint.model.config
    tokenizer = Tokenizer(checkpoint.tokenizer)
    template = (
        ChatTemplate.from_json(checkpoint.chat_template) if checkpoint.chat_template else ChatTemplate()
    )
    longest = min(LONGEST, config.base.context_length)
    rows = []
    for line in TEXT.read_text(encoding="utf-8").splitlines():
        turn = json.loads(line)
        prompt = tokenizer.encode_parts(template.first_turn(turn["prompt"]))[: longest // 2]
        answer = tokenizer.encode(turn["answer"])[: longest - len(prompt)]
        rows.append(([[token] for token in prompt], list(_cut(answer, config.max_steps))))
    for start in range(0, len(rows), ROWS):
        yield _batch(rows[start : start + ROWS], config.max_steps)


def _cut(tokens: list[int], most: int) -> Iterator[list[int]]:
    size = 1
    while tokens:
        yield tokens[:size]
        tokens, size = tokens[size:], size % most + 1


def _batch(rows: list[tuple[list[list[int]], list[list[int]]]], most: int) -> GroupBatch:
    """Right-padded; every slot from the prompt's last on predicts the group that follows it."""
    slots = max(len(prompt) + len(groups) for prompt, groups in rows)
    shape = (len(rows), slots)
    tokens, following = (torch.zeros(*shape, most, dtype=torch.long) for _ in range(2))
    sizes, to_predict = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
    for row, (prompt, groups) in enumerate(rows):
        for slot, group in enumerate([*prompt, *groups]):
            tokens[row, slot, : len(group)] = torch.tensor(group)
            sizes[row, slot] = len(group)
        first, last = len(prompt), len(prompt) + len(groups)
        following[row, first - 1 : last - 1] = tokens[row, first:last]
        to_predict[row, first - 1 : last - 1] = sizes[row, first:last]
    return GroupBatch(tokens, sizes, following, to_predict)
