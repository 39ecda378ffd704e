"""Covariances of the inputs of layers on calibration text, with which 4-bit weights compensate errors.

The whole text is read one stage at a time. Layers are rounded in that order:

    embedder -> base layer 0 -> base layer 1 -> ... -> head -> micro layer 0 -> ...

Between two stages only the hidden states of the text are kept. Covariances are kept for one stage, so an
export holds those of its widest layer, not of all layers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterator

import torch
from torch import Tensor, nn

from hamburger_edge.export.quantization.calibration_batches import calibration_batches
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.export.quantization.input_ranges import HEAD
from hamburger_edge.models.architecture.hamburger import GroupBatch, Hamburger
from hamburger_edge.models.architecture.llama import WholeSequence
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint

RANGES_EVERY = 4  # cache ranges alone come from one conversation in so many, at no loss
STRIPES = 4  # of a covariance: with the lower triangle's stripes alone, 5/8 of the products

Covariances = dict[str, InputCovariance]  # by the layer's path; layers with the same input share one


def stage_paths(model: Hamburger) -> list[str]:
    """Return the paths of the stages in the order of reading."""
    base = (f"base.layers.{number}" for number in range(len(model.base.layers)))
    micro = (f"micro.layers.{number}" for number in range(len(model.micro.layers)))
    return ["embedder", *base, HEAD, *micro]


def covariances_by_stage(checkpoint: Checkpoint, layers: Collection[str] = ()) -> Generator[Covariances]:
    """Yield the covariances of each stage of `stage_paths`: of the inputs of its layers among `layers`.

    The text goes through `Hamburger.forward` one stage at a time. Without `layers` a part of it does, for the
    ranges that listen to the model. A stage's covariances are cleared before the next one is read.
    """
    for sums in _read(checkpoint, layers):
        covariances = sums.means()
        yield covariances
        covariances.clear()


def _read(checkpoint: Checkpoint, layers: Collection[str]) -> Iterator[_Sums]:
    """Yield the sums of each stage when it has read the text."""
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
        hooks = [norm.register_forward_hook(lambda _, __, out: sums.add(path, out)) for norm in heard]
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
