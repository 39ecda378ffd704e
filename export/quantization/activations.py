"""Activations on calibration text: the inputs of layers and the contents of the cache.

With the covariance of a layer's inputs, 4-bit weights compensate each other's errors. An 8-bit cache needs
the range of each channel (`cache_ranges.py`). Both come from reading text through the model as it is used:
prompts token by token, answers in groups of every length. The text is the checkpoint's own, or
`calibration.jsonl` (questions with SmolLM2's answers). Ranges also come from `other_text.jsonl`: other
languages, code and tables, token by token.

The whole text is read one stage at a time. Layers are rounded in that order:

    embedder -> base layer 0 -> base layer 1 -> ... -> head -> micro layer 0 -> ...

Between two stages only the hidden states of the text are kept. Covariances are kept for one stage, so an
export holds those of its widest layer, not of all layers.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.export.quantization.cache_ranges import CacheRanges
from hamburger_edge.export.quantization.folds import Folds
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.export.quantization.input_ranges import HEAD, InputRanges
from hamburger_edge.loop.ledger import Group
from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger
from hamburger_edge.models.architecture.llama import WholeSequence
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    read_calibration,
    to_fit,
    to_judge,
)
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.support.progress import Progress, no_progress

TEXT = Path(__file__).with_name("calibration.jsonl")
OTHER_TEXT = Path(__file__).with_name("other_text.jsonl")
ROWS, LONGEST = 4, 224  # conversations read together; tokens of each
RANGES_EVERY = 4  # cache ranges alone come from one conversation in so many, at no loss
STRIPES = 4  # of a covariance: with the lower triangle's stripes alone, 5/8 of the products


class Calibration:
    """Covariances of the inputs of `layers`, taken in the order of reading. With `cache` also the ranges of
    the cache, with `inputs` those of the base's products.

    Layers with the same input share their covariance.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        layers: Collection[str] = (),
        *,
        cache: bool = False,
        inputs: bool = False,
    ):
        """Without a checkpoint that has a tokenizer, no layer has a covariance, no input a range, and no norm
        is folded."""
        readable = checkpoint is not None and checkpoint.tokenizer is not None
        self.layers = frozenset(layers if readable else ())
        self._held: dict[str, InputCovariance] = {}  # of the stage that was read last
        self._passed: set[str] = set()  # layers of the stages so far
        self._checkpoint = checkpoint
        self._ranges = CacheRanges(checkpoint.model) if checkpoint is not None and cache else None
        self._inputs = InputRanges(checkpoint.model) if checkpoint and readable and inputs else None
        self._stages: Iterator[_Sums] = iter(())
        self._folds: Folds | None = None
        self._count, self._finished = 0, False
        if checkpoint is not None and (self.layers or self._ranges or self._inputs):
            self._stages = _read(checkpoint, self.layers)
            self._count = len(checkpoint.model.base.layers) + len(checkpoint.model.micro.layers) + 2

    def take(self, layer: str) -> InputCovariance | None:
        """Return a layer's covariance, once; None for layers not in `layers`, not reached, or of earlier
        stages."""
        while layer in self.layers and layer not in self._passed:
            if not self._advance():
                return None
        return self._held.pop(layer, None)

    def folds(self, progress: Progress = no_progress) -> Folds:
        """Return the scales to fold into norms; without `inputs` there are none."""
        if self._inputs is not None and self._folds is None:
            self._read_the_rest(progress)
            self._folds = self._inputs.folds()
        return self._folds or Folds({})

    def ranges(self) -> dict[str, float]:
        """Return the largest magnitude of the inputs of products, after folding, by the product's path."""
        return {} if self._inputs is None else self._inputs.by_product(self.folds())

    def scales(self, progress: Progress = no_progress) -> dict[str, Tensor]:
        """ "key_scale.N", "value_scale.N" -> the unit [K * D] of each channel of an 8-bit cache.

        Reads the rest of the text, and the other text."""
        self._read_the_rest(progress)
        self.close()
        return {} if self._ranges is None else self._ranges.scales()

    def _read_the_rest(self, progress: Progress) -> None:
        if self._checkpoint is not None and (self._ranges or self._inputs) and not self._finished:
            with torch.no_grad():
                for batch in other_batches(self._checkpoint):
                    self._checkpoint.model.features(batch)
        self._finished, done = True, 0
        while self._advance():
            progress("calibrating", done, self._count)
            done += 1

    def _advance(self) -> bool:
        self._held = {}  # free it before the next stage
        sums = next(self._stages, None)
        if sums is None:
            return False
        self._held = sums.means()
        self._passed |= self._held.keys()
        return True

    def close(self) -> None:
        self._held, self._stages = {}, iter(())
        for ranges in (self._ranges, self._inputs):
            if ranges is not None:
                ranges.close()


def _read(checkpoint: Checkpoint, layers: Collection[str]) -> Iterator[_Sums]:
    """Yield the stages as they finish: `Hamburger.forward` of all batches, one layer at a time."""
    model, config = checkpoint.model, checkpoint.model.config
    batches = list(calibration_batches(checkpoint, 1 if layers else RANGES_EVERY))
    with _listening(model.embedder, "embedder", layers) as sums:
        states = [  # of each batch: [B, S, d]
            model.embed(batch.groups.flatten(0, 1), batch.sizes.clamp(min=1).flatten())
            .float()
            .unflatten(0, batch.sizes.shape)
            for batch in batches
        ]
    yield sums
    micro = any(name.startswith("micro.") for name in layers)
    picked = [batch.target_sizes.nonzero(as_tuple=True) for batch in batches]  # the predicting slots
    read = [_rows_of_micro(model, batch) for batch in batches] if micro else []  # [G, F + m - 1, d] each
    rotary = [model.base_rotary(model.positions(batch)) for batch in batches]
    for number, layer in enumerate(model.base.layers):
        with _listening(layer, f"base.layers.{number}", layers) as sums:
            for i, tables in enumerate(rotary):
                states[i] = layer(states[i], WholeSequence(config.base, tables))
        if number in config.taps:
            for i, rows in enumerate(read):
                rows[:, sorted(config.taps).index(number)] = states[i][picked[i]]
        yield sums
    with _listening(model.base.norm, HEAD, layers, outputs=True) as sums:
        for i, hidden in enumerate(states):
            states[i] = model.base.norm(hidden)
    for i, rows in enumerate(read):
        rows[:, len(config.taps)] = states[i][picked[i]]
    del states
    yield sums
    for number, layer in enumerate(model.micro.layers if micro else ()):
        with _listening(layer, f"micro.layers.{number}", layers) as sums:
            for i, rows in enumerate(read):
                attend = WholeSequence(model.micro_config, model.micro_rotary(0, rows.shape[1]))
                read[i] = layer(rows, attend)
        yield sums


def _rows_of_micro(model: Hamburger, batch: GroupBatch) -> Tensor:
    """Return [G, F + m - 1, d]: the features of the predicting slots, and the tokens after each."""
    following = batch.targets[batch.target_sizes.nonzero(as_tuple=True)][:, :-1]
    embeddings = model.base.embed(following).detach()
    return torch.nn.functional.pad(embeddings, (0, 0, model.config.num_features, 0))


class _Sums:
    """Sum x x^T over the inputs x of chosen linear layers of one stage; equal inputs share one sum."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.owner: dict[str, str] = {}  # layer -> the first one fed the same
        self.latest: tuple[Tensor, str] | None = None

    def add(self, name: str, x: Tensor) -> None:
        if self.latest is not None and self.latest[0] is x:
            self.owner[name] = self.latest[1]
            return
        self.latest, self.owner[name] = (x, name), name
        rows = x.reshape(-1, x.shape[-1]).float()
        width = rows.shape[1]
        if name not in self.sums:
            self.sums[name] = torch.zeros(width, width)
        total, step = self.sums[name], -(-width // STRIPES)
        for first in range(0, width, step):  # the lower triangle
            last = min(first + step, width)
            total[first:last, :last].addmm_(rows[:, first:last].T, rows[:, :last])
        self.counts[name] = self.counts.get(name, 0) + len(rows)

    def means(self) -> dict[str, InputCovariance]:
        """Return every layer's mean; the sums are consumed."""
        means = {}
        for name, total in self.sums.items():
            total.tril_().div_(self.counts[name])
            means[name] = InputCovariance(total.add_(total.tril(-1).T))
        self.sums.clear()
        return {name: means[owner] for name, owner in self.owner.items()}


@contextlib.contextmanager
def _listening(
    stage: nn.Module, path: str, layers: Collection[str], *, outputs: bool = False
) -> Iterator[_Sums]:
    """Sum over the inputs of a stage's layers while it runs; with `outputs`, over the stage's output.

    Covariances need 8 bits of each input: where the processor multiplies bfloat16, layers do. No timing
    decides, so that two exports on a machine are the same.
    """
    sums, can = _Sums(), torch.cpu.get_capabilities()
    short = bool(layers and (can.get("avx512_bf16") or can.get("amx_bf16")))

    def before(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda module, inputs: sums.add(name, inputs[0])

    if outputs:
        heard = [stage] if path in layers else []
        hooks = [each.register_forward_hook(lambda _, __, out: sums.add(path, out)) for each in heard]
    else:
        named = ((f"{path}.{name}", module) for name, module in stage.named_modules())
        hooks = [module.register_forward_pre_hook(before(name)) for name, module in named if name in layers]
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=short):
            yield sums
    finally:
        sums.latest = None
        for hook in hooks:
            hook.remove()


Conversation = tuple[list[Group], list[Group]]  # prompt, answer


def calibration_texts(checkpoint: Checkpoint) -> Iterator[Conversation]:
    """Yield the conversations to fit weights and cache ranges to."""
    yield from _read_by(checkpoint, to_fit(read_calibration(_text_of(checkpoint))))


def judging_texts(checkpoint: Checkpoint) -> Iterator[Conversation]:
    """Yield conversations of the same kind that nothing is fitted to."""
    kept = to_judge(read_calibration(_text_of(checkpoint)))
    yield from _read_by(checkpoint, kept or to_judge(read_calibration(TEXT)))


def _text_of(checkpoint: Checkpoint) -> Path:
    return checkpoint.file(CALIBRATION) or TEXT


def _read_by(checkpoint: Checkpoint, text: list[CalibrationExample]) -> Iterator[Conversation]:
    """Encode conversations in the model's own template: the prompt token by token, and the answer in groups
    of 1, 2, ... max_group_tokens, 1, ..."""
    config = checkpoint.model.config
    tokenizer = Tokenizer(checkpoint.tokenizer)
    template = ChatTemplate.from_json(checkpoint.chat_template)
    longest = min(LONGEST, config.base.context_length)
    for said in text:
        prompt = tokenizer.encode_parts(template.first_turn(said.prompt, said.system))[: longest // 2]
        answer = tokenizer.encode(said.answer)[: longest - len(prompt)]
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


def _cut(tokens: list[int], most: int) -> Iterator[Group]:
    size = 1
    while tokens:
        yield tuple(tokens[:size])
        tokens, size = tokens[size:], size % most + 1


def _batch(rows: list[tuple[list[Group], list[Group]]], most: int) -> GroupBatch:
    """Right-pad rows; every slot from the prompt's last on predicts the following group."""
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
