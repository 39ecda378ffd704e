"""Activations on calibration text: what layers are fed and what the cache holds, for rounding them well.

The moments of a layer's inputs let 4-bit weights make up for each other's errors. An 8-bit cache needs the
range of each channel. Both come from reading `calibration.jsonl`, questions and SmolLM2's own answers,
through the model as it will be used: prompts token by token, answers in groups of every length.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.export.quantization.moments import Moments
from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger
from hamburger_edge.models.architecture.llama import DecoderLayer
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.progress import Progress

TEXT = Path(__file__).with_name("calibration.jsonl")
ROWS, LONGEST = 4, 224  # conversations read at once; tokens of each
HEAD = "head"  # what the base's last norm feeds, be it a layer of its own or the embeddings


def measure(
    checkpoint: Checkpoint, layers: Collection[str], *, cache: bool, progress: Progress
) -> tuple[dict[str, Moments], dict[str, Tensor]]:
    """(layer -> moments of its inputs, nothing for layers that reading does not reach;
    with `cache`, "key_scale.N", "value_scale.N" -> the unit [K * D] of each channel of an 8-bit cache)"""
    moments, ranges = _Sums(checkpoint.model, layers), _CacheRanges(checkpoint.model, cache)
    try:
        if layers or cache:
            batches = list(calibration_batches(checkpoint))
            for number, batch in enumerate(batches):
                progress("calibrating", number, len(batches))
                with torch.no_grad():
                    checkpoint.model(batch)
    finally:
        moments.close()
        ranges.close()
    return moments.means(), ranges.scales()


class _Sums:
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
        if HEAD in layers:
            add = self._hook(HEAD)
            self.hooks.append(model.base.norm.register_forward_hook(lambda norm, _, out: add(norm, (out,))))

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

    def means(self) -> dict[str, Moments]:
        means = {name: Moments(total.div_(self.counts[name])) for name, total in self.sums.items()}
        return {name: means[owner] for name, owner in self.owner.items()}

    def close(self) -> None:
        self.latest = None
        for hook in self.hooks:
            hook.remove()


class _CacheRanges:
    """The largest magnitude of each channel of the base's keys and values.

    A rotation turns a pair of key channels (i, i + D/2) by an angle that depends on the position; what it
    cannot change is their length, so that is both channels' magnitude, at every position.
    """

    def __init__(self, model: Hamburger, wanted: bool):
        self.largest: dict[str, Tensor] = {}
        self.head_dim = model.config.base.head_dim
        self.hooks = []
        for number, layer in enumerate(model.base.layers if wanted else ()):
            assert isinstance(layer, DecoderLayer)
            attention = layer.self_attn
            keys = attention.k_proj if attention.k_norm is None else attention.k_norm
            self.hooks.append(keys.register_forward_hook(self._hook(f"key_scale.{number}", pairs=True)))
            values = self._hook(f"value_scale.{number}", pairs=False)
            self.hooks.append(attention.v_proj.register_forward_hook(values))

    def _hook(self, name: str, *, pairs: bool) -> Callable[[nn.Module, Any, Tensor], None]:
        def widen(module: nn.Module, inputs: Any, rows: Tensor) -> None:
            heads = rows.float().flatten(2).unflatten(-1, (-1, self.head_dim))  # [B, S, K, D]
            if pairs:
                lengths = heads.unflatten(-1, (2, -1)).square().sum(-2).sqrt()
                heads = torch.cat([lengths, lengths], dim=-1)
            found = heads.abs().amax((0, 1)).flatten()
            before = self.largest.get(name)
            self.largest[name] = found if before is None else torch.maximum(before, found)

        return widen

    def scales(self) -> dict[str, Tensor]:
        return {name: largest.clamp(min=1e-6) / 127 for name, largest in self.largest.items()}

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()


def calibration_batches(checkpoint: Checkpoint) -> Iterator[GroupBatch]:
    """Conversations in the model's own template; answers cut into groups of 1, 2, ... max_steps, 1, ..."""
    config = checkpoint.model.config
    tokenizer = Tokenizer(checkpoint.tokenizer)
    template = ChatTemplate.from_json(checkpoint.chat_template)
    longest = min(LONGEST, config.base.context_length)
    rows = []
    for line in TEXT.read_text(encoding="utf-8").splitlines():
        turn = json.loads(line)
        prompt = tokenizer.encode_parts(template.first_turn(turn["prompt"]))[: longest // 2]
        answer = tokenizer.encode(turn["answer"])[: longest - len(prompt)]
        rows.append(([[token] for token in prompt], list(_cut(answer, config.max_steps))))
    rows.sort(key=lambda row: len(row[0]) + len(row[1]))  # rows of a batch are padded to the longest
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
