"""First part of the parity gate: every graph against its PyTorch module.

The tokens are those of calibration text, or random without a tokenizer. Low-bit weights are fitted to that
text, and no model need be robust on noise: the ranges of int8 activations come from text too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hamburger_edge.errors import ParityError
from hamburger_edge.export.quantization.calibration_batches import calibration_texts
from hamburger_edge.loop.backend import Backend
from hamburger_edge.loop.ledger import Ledger
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

Array = npt.NDArray[Any]
Embed = Callable[[list[list[int]]], Array]  # groups of one size -> their embeddings


@dataclass(frozen=True)
class GraphParity:
    name: str
    max_abs_error: float
    relative_error: float  # root mean square


def _compare(graph: str, pairs: list[tuple[str, Array, Array]], limit: float) -> GraphParity:
    """(tensor, exported, reference) pairs -> their errors, or a ParityError at a tensor's worst element.

    The limit applies to the root mean square of all pairs of a tensor: at 4 bits a single pair on random
    tokens may be far off in a correct model.
    """
    calls: dict[str, list[tuple[Array, Array]]] = {}
    for tensor, got, want in pairs:
        if got.shape != want.shape:
            raise ParityError(f"{graph}.{tensor}: shape {list(got.shape)}, PyTorch has {list(want.shape)}")
        calls.setdefault(tensor, []).append((got, want))
    worst, relative = 0.0, 0.0
    for tensor, compared in calls.items():
        errors = [np.abs(got.astype(np.float64) - want) for got, want in compared]
        # a probability's error is relative to 1: half of a tiny probability is harmless
        size = 1.0 if tensor == "p_stop" else _root_mean_square([want for _, want in compared])
        share = _root_mean_square(errors) / (size + 1e-6)
        peaks = [float(np.nan_to_num(error, nan=np.inf).max()) for error in errors]
        if not share <= limit:
            call = int(np.argmax(peaks))
            got, want = compared[call]
            worst_at = np.unravel_index(np.argmax(np.nan_to_num(errors[call], nan=np.inf)), got.shape)
            index = ", ".join(str(int(i)) for i in worst_at)
            raise ParityError(
                f"{graph}.{tensor}: error {share:.3g} of its size (limit {limit:g}), worst in call {call} at "
                f"[{index}]: {got[worst_at]:.6g}, PyTorch has {want[worst_at]:.6g}"
            )
        worst, relative = max(worst, *peaks), max(relative, share)
    return GraphParity(graph, worst, relative)


def _root_mean_square(arrays: Sequence[Array]) -> float:
    return float(np.sqrt(np.mean(np.concatenate([np.square(a, dtype=np.float64).ravel() for a in arrays]))))


def centred(logits: Array) -> Array:
    """Return a copy without each row's mean, which is most of the scores' size and has no meaning."""
    wide = np.asarray(logits, np.float64)
    result: Array = wide - wide.mean(-1, keepdims=True)
    return result


class Tokens:
    """Tokens to try graphs on, the same each time."""

    def __init__(self, checkpoint: Checkpoint, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._vocab = checkpoint.model.config.base.vocab_size
        self._text: list[int] = []
        self._next = 0
        if checkpoint.tokenizer is not None:  # from the beginning of a conversation
            texts = itertools.islice(calibration_texts(checkpoint), 8 * seed, 8 * seed + 8)
            self._text = [token for parts in texts for groups in parts for group in groups for token in group]

    def take(self, size: int) -> list[int]:
        if not self._text:
            drawn: list[int] = self._random.integers(0, self._vocab, size).tolist()
            return drawn
        taken = [self._text[(self._next + i) % len(self._text)] for i in range(size)]
        self._next += size
        return taken


def check_embedder(model: Hamburger, embed: Embed, limit: float) -> GraphParity:
    random = np.random.default_rng(0)
    pairs = []
    for size in range(1, model.config.max_group_tokens + 1):
        groups = random.integers(0, model.config.base.vocab_size, (5, size))
        got = embed(groups.tolist())
        with torch.inference_mode():
            want = model.embed(torch.from_numpy(groups), torch.full((5,), size))
        pairs.append((f"embeddings of {size} tokens", got, want.numpy()))
    return _compare("embedder", pairs, limit)


def check_base(
    checkpoint: Checkpoint, reference: TorchBackend, exported: Backend, limit: float
) -> GraphParity:
    """Compare a prompt in two calls with gaps in its positions, then single slots, on equal embeddings.

    A text's first token is read alone, as the loop may do, and is not compared: it has by far the largest
    activations, and no answer begins from its scores.
    """
    tokens, model, pairs = Tokens(checkpoint, 1), checkpoint.model, []
    ledger = Ledger.of(exported.info)
    restart(reference, exported)
    for call, sizes in enumerate(([1], [1] * 6, [1, 2, 1, 1], [1], [2], [1])):
        sizes = [min(size, model.config.max_group_tokens) for size in sizes]
        groups = [tuple(tokens.take(size)) for size in sizes]
        positions = [ledger.append(group) for group in groups]
        rows = [0, len(groups) - 1] if len(groups) > 1 else [0]
        got, want = (backend.macro(groups, positions, rows) for backend in (exported, reference))
        if not call:
            continue
        pairs += [
            ("logits", centred(got.logits), centred(want.logits)),
            ("p_stop", got.p_stop.copy(), want.p_stop),
            ("features", got.features.copy(), want.features.numpy()),
        ]
    return _compare("base", pairs, limit)


def check_micro_decoder(
    checkpoint: Checkpoint, reference: TorchBackend, exported: Backend, limit: float
) -> GraphParity:
    """Compare on the reference's features of tokens: rounding is calibrated for such, not for noise."""
    source, config, pairs = Tokens(checkpoint, 2), checkpoint.model.config, []
    for _ in range(3):
        restart(reference)
        tokens = [(token,) for token in source.take(5)]
        features = reference.macro(tokens, range(len(tokens)), [len(tokens) - 1]).features[0]
        exported.micro_begin(features.numpy())
        reference.micro_begin(features)
        for token in source.take(config.max_group_tokens - 1):
            got, want = exported.micro(token), reference.micro(token)
            pairs.append(("logits", centred(got.logits), centred(want.logits)))
            pairs.append(("p_stop", np.array([got.p_stop]), np.array([want.p_stop])))
    return _compare("micro_decoder", pairs, limit)


def restart(*backends: Backend) -> None:
    for backend in backends:
        backend.truncate(0)
