"""The parity gate: an exported bundle agrees with its PyTorch model, or the export fails.

    graphs   every graph against its PyTorch module, on tokens of calibration text
    text     whole generations through the engine on fixed prompts, with groups of every length;
             then reading them: extra surprise, and agreement of the stop head
    quality  text that nothing was fitted to: share of equal likeliest tokens, and divergence

float32 must agree to rounding and word for word. For other precisions `LIMITS` holds the largest difference
of the same model; a wrong connection exceeds all of them. `quality.py` judges whether the loss is usual for
the precision, and refuses a useless model. GGUF files go through the same gate, run by llama.cpp.

Of a model that decodes plainly or verifies, the base chooses every token. There a micro decoder that lost too
much costs speed only, and the report warns about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.manifest import KV_TYPES, Manifest, PrecisionPlan
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import BundleError, InputError, ParityError
from hamburger_edge.export.parity.graphs import (
    Array,
    Embed,
    GraphParity,
    check_base,
    check_embedder,
    check_micro_decoder,
)
from hamburger_edge.export.parity.quality import Quality, compare, refused, worst_of
from hamburger_edge.export.parity.text import fixed_prompts, generations, read
from hamburger_edge.loop.answer_facts import AnswerFacts
from hamburger_edge.loop.backend import Backend, ModelInfo
from hamburger_edge.loop.dial import UNMEASURED
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.runtimes.llamacpp.library import library
from hamburger_edge.runtimes.llamacpp.llamacpp_backend import LlamaCppBackend
from hamburger_edge.runtimes.onnx.buffers import Buffer
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend
from hamburger_edge.support.progress import Progress, StagedProgress, no_progress
from hamburger_edge.support.strict import read_json

CAPACITY = 512
STAGES = {"verifying graphs": 3.0, "verifying text": 12.0, "measuring quality": 10.0}  # usual seconds


class ParityLimits(NamedTuple):
    graph: float  # root mean square of an output's error, relative to the output's
    embedder: float  # the same for the embedder's, a shallow graph on tokens it was made for
    surprise: float  # mean extra nats a token when reading the reference's text
    stop: float  # root mean square of p_stop's error on that text, relative to its spread; 1: a constant
    identical: bool  # whole generations must be the same


LIMITS = {
    "fp32": ParityLimits(2e-5, 2e-5, 1e-4, 1e-3, True),
    "fp16": ParityLimits(1e-2, 1e-2, 0.02, 0.05, False),
    "int8": ParityLimits(0.15, 0.05, 0.2, 0.15, False),  # in blocks
    "int8 by column": ParityLimits(0.3, 0.1, 0.4, 0.5, False),  # activations of a whole call share a scale
    "int4": ParityLimits(0.6, 0.2, 1.0, 0.6, False),
}
LIMITS |= {"f32": LIMITS["fp32"], "f16": LIMITS["fp16"], "q8_0": LIMITS["int8"]}
LIMITS |= {"q4_0": LIMITS["int4"], "q4_1": LIMITS["int4"]}


def limits_of(plan: PrecisionPlan, kv: str) -> ParityLimits:
    """Return the widest limits of all parts; a cache rounds like weights of its type."""
    cache = next(name for name, dtype in KV_TYPES.items() if dtype == kv)
    parts: list[str] = [plan.base, plan.head, plan.graft]
    if plan.base == "int8" and not plan.block_size:
        parts = ["int8 by column" if name == "int8" else name for name in parts]
    return max(LIMITS[name] for name in (*parts, cache))


@dataclass(frozen=True)
class Divergence:
    prompt: int
    token: int  # of the answer, counted from 0


@dataclass(frozen=True)
class ParityReport:
    """The measurements of a bundle that passed."""

    precision: str
    graphs: tuple[GraphParity, ...]
    prompts: int  # generations compared
    identical: int  # of them, the same token for token
    first_divergence: Divergence | None
    agreement: float  # share of the reference's tokens that the exported model would also have chosen
    logit_error: float  # largest, while reading the reference's text
    perplexity: float  # of the reference's text to the exported model
    reference_perplexity: float  # and to the reference itself
    quality: Quality | None  # None: no tokenizer to read text with
    warnings: tuple[str, ...] = ()  # about a micro decoder whose tokens the base checks

    def to_json(self) -> dict[str, Any]:
        quality = self.quality and {**asdict(self.quality), "verdict": self.quality.verdict}
        return {"ok": True, **asdict(self), "quality": quality}

    def __str__(self) -> str:
        lines = [f"{'graph':<16}{'largest error':>15}{'relative':>12}"]
        lines += [f"{g.name:<16}{g.max_abs_error:>15.2e}{g.relative_error:>12.2e}" for g in self.graphs]
        where = ""
        if self.first_divergence:
            where = f", first difference at token {self.first_divergence.token}"
        lines += [
            f"generations     {self.identical} of {self.prompts} identical{where}",
            f"reading         agrees with {self.agreement:.1%} of tokens, perplexity "
            f"{self.reference_perplexity:.3f} -> {self.perplexity:.3f}",
            *([str(self.quality)] if self.quality else []),
            *(f"warning         {warning}" for warning in self.warnings),
            f"passed at {self.precision}",
        ]
        return "\n".join(lines)


def verify(
    bundle: str | Path,
    against: str | Path | None = None,
    *,
    backend: str = "auto",
    progress: Progress = no_progress,
) -> ParityReport:
    """Run the gate on a bundle against its checkpoint, by default the one that it names."""
    folder = Path(bundle)
    progress = StagedProgress(progress, {"loading": 4.0, **STAGES})
    manifest = load_manifest(folder)
    check_files(folder, manifest)
    progress("loading", 0, 0)
    if backend == "auto":
        backend = "onnx" if manifest.graphs else "llamacpp"
    if not (manifest.graphs if backend == "onnx" else manifest.gguf):
        wanted, form = ("graphs", "onnx") if backend == "onnx" else ("GGUF files", "gguf")
        raise BundleError(f"{folder}: holds no {wanted}: export it again with  --format {form}")
    checkpoint = load_checkpoint(against or manifest.graft.name, half=True)
    return check_parity(folder, manifest, checkpoint, backend=backend, progress=progress)


def check_parity(
    folder: Path,
    manifest: Manifest,
    checkpoint: Checkpoint,
    *,
    backend: str = "onnx",
    progress: Progress = no_progress,
) -> ParityReport:
    """Raise ParityError with graph, tensor, index and size if a limit of this precision is exceeded."""
    with _opened(folder, manifest, checkpoint, backend) as compared:
        checked = (manifest.recommended or UNMEASURED).mode in ("plain", "verify")
        return _check(compared, Complaints(micro_is_checked=checked), progress)


def check_graphs(
    folder: Path, manifest: Manifest, checkpoint: Checkpoint, progress: Progress = no_progress
) -> None:
    """The gate's first part, for ONNX graphs: it takes seconds, and finds a broken model."""
    with _opened(folder, manifest, checkpoint, "onnx") as compared:
        _check_graphs(compared, progress)


class _Compared(NamedTuple):
    """A bundle beside its checkpoint."""

    checkpoint: Checkpoint
    reference: TorchBackend
    exported: Backend
    embed: Embed
    limits: ParityLimits
    loses_most: str  # precision


@contextmanager
def _opened(folder: Path, manifest: Manifest, checkpoint: Checkpoint, backend: str) -> Iterator[_Compared]:
    if backend not in _OPENERS:
        raise InputError(f"a bundle is compared as run by {' or '.join(_OPENERS)}, not {backend}")
    ours, theirs = manifest.model.merge_residual, checkpoint.model.config.merge_residual
    if ours != theirs:
        raise ParityError(f"the bundle's merge_residual is {ours}, the checkpoint's {theirs}: another model")
    _same_text(folder, manifest, checkpoint)
    exported, embed = _OPENERS[backend](folder, manifest)
    try:
        if backend == "onnx":
            plan = manifest.precision, manifest.kv.dtype
        else:
            assert manifest.gguf is not None
            plan = manifest.gguf.precision, "float32"
        facts = AnswerFacts.of(checkpoint.manifest)
        reference = TorchBackend(checkpoint.model, cache_slots=CAPACITY, facts=facts)
        _same_model(reference.info, exported.info)
        yield _Compared(checkpoint, reference, exported, embed, limits_of(*plan), worst_of(*plan))
    finally:
        exported.close()


def _open_onnx(folder: Path, manifest: Manifest) -> tuple[Backend, Embed]:
    # one thread: the reference's wait beside it
    backend = OnnxBackend(folder, manifest, threads=1, cache_slots=manifest.cache_slots or CAPACITY)

    def embed(groups: list[list[int]]) -> Array:
        buffer = Buffer(np.zeros((1, len(groups), manifest.model.hidden_size), np.float32))
        backend.embedder.run(groups, buffer)
        embeddings: Array = buffer.array[0]
        return embeddings

    return backend, embed


def _open_llama_cpp(folder: Path, manifest: Manifest) -> tuple[Backend, Embed]:
    backend = LlamaCppBackend(
        folder, manifest, library(), cache_slots=CAPACITY, threads=1, kv_cache_dtype="f32", gpu_layers=0
    )
    return backend, backend.embedder


_OPENERS = {"onnx": _open_onnx, "llamacpp": _open_llama_cpp}


class Complaints:
    """Losses beyond a limit: errors, but for those of a micro decoder that the base checks."""

    def __init__(self, *, micro_is_checked: bool):
        self.micro_is_checked = micro_is_checked
        self.warnings: list[str] = []

    def add(self, graph: str, text: str) -> None:
        if not (graph == "micro_decoder" and self.micro_is_checked):
            raise ParityError(text)
        self.warnings.append(f"{text}; the recommended mode checks its tokens, so this costs speed only")


def _check_graphs(compared: _Compared, progress: Progress) -> list[GraphParity]:
    checkpoint, reference, exported, embed, limits, _ = compared
    progress("verifying graphs", 0, 0)
    graphs = [
        check_embedder(checkpoint.model, embed, limits.embedder),
        check_base(checkpoint, reference, exported, limits.graph),
    ]
    if checkpoint.model.config.has_graft:
        graphs.append(check_micro_decoder(checkpoint, reference, exported, limits.graph))
    return graphs


def _check(compared: _Compared, complaints: Complaints, progress: Progress) -> ParityReport:
    checkpoint, reference, exported, _, limits, loses_most = compared
    graphs = _check_graphs(compared, progress)
    prompts = fixed_prompts(checkpoint)
    runs = list(generations(reference, exported, prompts, progress))
    wanted = set(range(1, checkpoint.model.config.max_group_tokens + 1))
    if missing := wanted - {len(group) for run in runs for group in run.reference}:
        raise ParityError(
            f"no generation had a group of {min(missing)} tokens, so the gate did not test that size"
        )
    split = next((run for run in runs if run.divergence is not None), None)
    if split is not None and limits.identical:
        raise ParityError(
            f"generation {split.name}: token {split.divergence} of the answer differs from PyTorch's"
        )
    reading = read(reference, exported, [(run.prompt, run.reference) for run in runs], progress)
    if not reading.surprise <= limits.surprise:
        complaints.add(
            "base",
            f"base.logits: {reading.surprise:.3g} nats a token worse than PyTorch on its own text, "
            f"the limit is {limits.surprise}: try another precision",
        )
    if not reading.micro_surprise <= limits.surprise:
        complaints.add(
            "micro_decoder",
            f"micro_decoder.logits: {reading.micro_surprise:.3g} nats a token worse than PyTorch on its own "
            f"text, the limit is {limits.surprise}: try another precision, or train the graft longer",
        )
    for graph, error in reading.stops.items():
        if not error <= limits.stop:
            complaints.add(
                graph,
                f"{graph}.p_stop: error {error:.3g} of its spread on PyTorch's own text "
                f"(limit {limits.stop:g}): try another precision",
            )
    quality = None
    if checkpoint.tokenizer is not None:
        quality = compare(checkpoint, reference, exported, loses_most, progress)
        for graph, loss in refused(quality):
            complaints.add(
                graph,
                f"{graph}.logits: {loss.divergence:.3g} nats from PyTorch on other text, its token at "
                f"{loss.agreement:.1%} of positions: try another precision",
            )
    return ParityReport(
        precision=exported.info.precision,
        graphs=tuple(graphs),
        prompts=len(runs),
        identical=sum(run.divergence is None for run in runs),
        first_divergence=None if split is None else Divergence(split.index, split.divergence or 0),
        agreement=reading.agreement,
        logit_error=reading.logit_error,
        perplexity=reading.perplexity,
        reference_perplexity=reading.reference_perplexity,
        quality=quality,
        warnings=tuple(complaints.warnings),
    )


def _same_text(folder: Path, manifest: Manifest, checkpoint: Checkpoint) -> None:
    """Check template and tokenizer: with other ones the graphs may be right and the text wrong."""
    ours, theirs = (ChatTemplate.from_json(x.chat_template) for x in (manifest, checkpoint))
    if ours != theirs:
        raise ParityError(
            "the bundle's chat_template is not the checkpoint's: another model, or a changed one"
        )
    if manifest.tokenizer is None or checkpoint.tokenizer is None:
        return
    if read_json(folder / manifest.tokenizer) != read_json(checkpoint.tokenizer):
        raise ParityError("the bundle's tokenizer is not the checkpoint's: another model, or a changed one")


def _same_model(reference: ModelInfo, exported: ModelInfo) -> None:
    """Check that the checkpoint is the bundle's: `verify --against` accepts any."""
    rules = ("position_rule", "stop_rule", "eos_ids")
    if exported.context_length > reference.context_length:  # it may be for shorter texts
        raise ParityError(
            f"the bundle's context_length is {exported.context_length}, the checkpoint's "
            f"{reference.context_length}: another model"
        )
    for name in ("vocab_size", "hidden_size", "max_group_tokens", *rules):
        ours, theirs = getattr(exported, name), getattr(reference, name)
        if ours != theirs:
            raise ParityError(f"the bundle's {name} is {ours}, the checkpoint's {theirs}: another model")
    lists = [
        None if info.draft_vocab is None else info.draft_vocab.tolist() for info in (reference, exported)
    ]
    if lists[0] != lists[1]:
        raise ParityError("the bundle's draft_vocab is not the checkpoint's: another model")
