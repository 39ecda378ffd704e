"""The parity gate of GGUF files: llama.cpp, running what was written, against the PyTorch model.

Both are fed the same groups, of every length, and compared at every macro and micro step. With float weights
they must say the same; with quantized ones the difference is what quantization costs, and is reported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hamburger_edge.backend import Backend, Floats
from hamburger_edge.errors import HamburgerWarning, MissingExtraError, ParityError
from hamburger_edge.kv_ledger import Ledger
from hamburger_edge.manifest import Manifest
from hamburger_edge.models.checkpoint import Checkpoint
from hamburger_edge.runtimes.llama_cpp import LlamaCppBackend
from hamburger_edge.runtimes.llama_library import library
from hamburger_edge.runtimes.torch_reference import TorchBackend

PROMPT, GROUPS = 24, 12  # tokens before, and groups after them
TOLERANCE = {"f32": 1e-3, "f16": 2e-2}  # largest difference, in standard deviations of the logits


@dataclass
class Divergence:
    """Of two backends fed the same groups."""

    choices: int = 0  # compared: the likeliest token at each macro and micro step
    agreeing: int = 0
    logits: float = 0.0  # largest difference, in standard deviations of the logits
    p_stop: float = 0.0  # largest difference
    where: str = ""  # of the largest difference
    kl: list[float] = field(default_factory=list)  # of the scores' distributions, nats

    def add(self, where: str, ours: Floats, wanted: Floats, p_stop: float, wanted_p_stop: float) -> None:
        self.choices += 1
        self.agreeing += int(ours.argmax() == wanted.argmax())
        difference = float(np.abs(ours - wanted).max() / wanted.std())
        if difference > self.logits:
            self.logits, self.where = difference, where
        self.p_stop = max(self.p_stop, abs(p_stop - wanted_p_stop))
        p, q = _log_softmax(wanted), _log_softmax(ours)
        self.kl.append(float((np.exp(p) * (p - q)).sum()))

    def __str__(self) -> str:
        return (
            f"{self.agreeing} of {self.choices} choices agree, KL {np.mean(self.kl):.2g} nats, "
            f"logits within {self.logits:.2g} standard deviations, stops within {self.p_stop:.2g}"
        )


def check_gguf_parity(
    folder: Path,
    manifest: Manifest,
    checkpoint: Checkpoint,
    *,
    progress: Callable[[str, int, int], None] = lambda stage, done, of: None,
) -> Divergence | None:
    """None where llama.cpp is not installed: files can be written for another machine."""
    assert manifest.gguf is not None
    try:
        llama = library()
    except MissingExtraError as error:
        warnings.warn(f"the GGUF files were not compared: {error}", HamburgerWarning, stacklevel=2)
        return None
    progress("verifying GGUF", 0, 0)
    backend = LlamaCppBackend(
        folder, manifest, llama, capacity=PROMPT + GROUPS, threads=1, kv="f32", gpu_layers=0
    )
    try:
        found = compare(backend, TorchBackend(checkpoint.model))
    finally:
        backend.close()
    precision = manifest.gguf.precision.base
    tolerance = TOLERANCE.get(precision)
    if tolerance is not None and not found.logits <= tolerance:
        raise ParityError(f"base.gguf, micro_decoder.gguf differ from the model {found.where}: {found}")
    if precision == "f32" and found.agreeing < found.choices:
        raise ParityError(f"llama.cpp and PyTorch choose different tokens: {found}")
    return found


def compare(backend: Backend, reference: Backend) -> Divergence:
    """Feed both the same prompt and the same groups of every length."""
    found, info = Divergence(), reference.info
    ledger = Ledger.of(info)
    for groups in _groups(info.vocab_size, info.max_steps):
        positions = [ledger.append(group) for group in groups]
        rows = [len(groups) - 1]
        ours, wanted = (each.macro(groups, positions, rows) for each in (backend, reference))
        where = f"after slot {positions[-1]}"
        found.add(where, ours.logits[0], wanted.logits[0], float(ours.p_stop[0]), float(wanted.p_stop[0]))
        for each, readout in ((backend, ours), (reference, wanted)):
            each.micro_begin(readout.features[0])
        token = int(wanted.logits[0].argmax())
        for step in range(1, info.max_steps):
            mine, theirs = backend.micro(token), reference.micro(token)
            found.add(f"{where}, micro step {step}", mine[0], theirs[0], mine.p_stop, theirs.p_stop)
            choice = int(theirs.logits.argmax())
            token = choice if info.shortlist is None else int(info.shortlist[choice])
    return found


def _groups(vocab_size: int, max_steps: int) -> Iterator[list[tuple[int, ...]]]:
    """A prompt of single tokens, then groups of 1, 2, ... max_steps, 1, 2, ... tokens."""
    random = np.random.default_rng(0)
    yield [(int(token),) for token in random.integers(0, vocab_size, PROMPT)]
    for number in range(GROUPS):
        yield [tuple(random.integers(0, vocab_size, number % max_steps + 1).tolist())]


def _log_softmax(x: Floats) -> Floats:
    shifted = x.astype(np.float64) - x.max()
    return shifted - np.log(np.exp(shifted).sum())  # type: ignore[no-any-return]
