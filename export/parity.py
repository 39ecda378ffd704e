"""The parity gate: an exported bundle says what its PyTorch model says, or the export fails.

    1  every graph against its PyTorch module, on random inputs
    2  whole generations through the engine on fixed prompts, with groups of every length
    3  the exported model reads the reference's generations: how much more surprised is it?

float32 must agree to rounding and word for word. For the others, `LIMITS` says how far off is still the
same model; a wrong wire is off by more than any of them. The GGUF files of a bundle go through the same gate,
run by llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from hamburger_edge.backend import Backend, ModelInfo
from hamburger_edge.chat import ChatTemplate
from hamburger_edge.engine import Decoding, Engine
from hamburger_edge.errors import BundleError, InputError, ParityError
from hamburger_edge.kv_ledger import Group, Ledger
from hamburger_edge.manifest import Manifest, check_files, load_manifest
from hamburger_edge.models.checkpoint import Checkpoint, load_checkpoint
from hamburger_edge.models.hamburger import Hamburger
from hamburger_edge.runtimes.llama_cpp import LlamaCppBackend
from hamburger_edge.runtimes.llama_library import library
from hamburger_edge.runtimes.onnx_buffers import Buffer
from hamburger_edge.runtimes.onnx_runtime import OnnxBackend
from hamburger_edge.runtimes.torch_reference import TorchBackend
from hamburger_edge.sampling import Sampler, SamplingSettings
from hamburger_edge.tokenizer import Tokenizer

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]

PROMPTS = (
    "Why is the sky blue?",
    "Write a short story about a lighthouse keeper.",
    "List five animals that live in the sea.",
)
NEW_TOKENS = 24
CAPACITY = 512


class Limits(NamedTuple):
    graph: float  # root mean square of an output's error on random inputs, relative to the output's
    embedder: float  # the same for the embedder's, a shallow graph on tokens it was made for
    surprise: float  # mean extra nats a token when reading the reference's text
    identical: bool  # whole generations must be the same


LIMITS = {
    "fp32": Limits(2e-5, 2e-5, 1e-4, True),
    "fp16": Limits(1e-2, 1e-2, 0.02, False),
    "int8": Limits(0.15, 0.05, 0.2, False),
    "int4": Limits(0.6, 0.2, 1.0, False),
}
LIMITS |= {"f32": LIMITS["fp32"], "f16": LIMITS["fp16"], "q8_0": LIMITS["int8"]}
LIMITS |= {"q4_0": LIMITS["int4"], "q4_1": LIMITS["int4"]}


def limits_of(precision: str, kv: str) -> Limits:
    """An 8-bit cache rounds as 8-bit weights do."""
    return max(LIMITS[precision], LIMITS["int8"]) if kv == "int8" else LIMITS[precision]


@dataclass(frozen=True)
class GraphParity:
    name: str
    max_abs_error: float
    relative_error: float  # root mean square


@dataclass(frozen=True)
class Divergence:
    prompt: int
    token: int  # of the answer, counted from 0


@dataclass(frozen=True)
class ParityReport:
    ok: bool
    precision: str
    graphs: tuple[GraphParity, ...]
    prompts: int  # generations compared
    identical: int  # of them, the same token for token
    first_divergence: Divergence | None
    agreement: float  # share of the reference's tokens that the exported model would also have said
    logit_error: float  # largest, while reading the reference's text
    perplexity: float  # of the reference's text to the exported model
    reference_perplexity: float  # and to the reference itself

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

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
            f"{'passed' if self.ok else 'failed'} at {self.precision}",
        ]
        return "\n".join(lines)


def verify(
    bundle: str | Path,
    against: str | Path | None = None,
    *,
    backend: str = "auto",
    progress: Progress = lambda *_: None,
) -> ParityReport:
    """Check a bundle's hashes, then run the gate against its checkpoint (by default the one it names)."""
    folder = Path(bundle)
    manifest = load_manifest(folder)
    check_files(folder, manifest, hashes=True)
    progress("loading", 0, 0)
    if backend == "auto":
        backend = "onnx" if manifest.graphs else "llamacpp"
    if not (manifest.graphs if backend == "onnx" else manifest.gguf):
        wanted, form = ("graphs", "onnx") if backend == "onnx" else ("GGUF files", "gguf")
        raise BundleError(f"{folder}: holds no {wanted}: export it again with  --format {form}")
    checkpoint = load_checkpoint(against or manifest.graft.name)
    return check_parity(folder, manifest, checkpoint, backend=backend, progress=progress)


def check_parity(
    folder: Path,
    manifest: Manifest,
    checkpoint: Checkpoint,
    *,
    backend: str = "onnx",
    progress: Progress = lambda *_: None,
) -> ParityReport:
    """Raises ParityError naming graph, tensor, place and size, where a limit of this precision is passed."""
    if backend not in _OPENERS:
        raise InputError(f"a bundle is compared as run by {' or '.join(_OPENERS)}, not {backend}")
    exported, embed = _OPENERS[backend](folder, manifest)
    try:
        kv = manifest.kv.dtype if backend == "onnx" else "float32"
        return _check(checkpoint, exported, embed, limits_of(exported.info.precision, kv), progress)
    finally:
        exported.close()


Embed = Callable[[list[list[int]]], Array]  # groups of one size -> their embeddings


def _open_onnx(folder: Path, manifest: Manifest) -> tuple[Backend, Embed]:
    backend = OnnxBackend(folder, manifest, capacity=manifest.cache_length or CAPACITY)

    def embed(groups: list[list[int]]) -> Array:
        buffer = Buffer(np.zeros((1, len(groups), manifest.model.hidden_size), np.float32))
        backend.embedder.run(groups, buffer)
        return buffer.array[0]

    return backend, embed


def _open_llama_cpp(folder: Path, manifest: Manifest) -> tuple[Backend, Embed]:
    backend = LlamaCppBackend(
        folder, manifest, library(), capacity=CAPACITY, threads=1, kv="f32", gpu_layers=0
    )
    return backend, backend.embedder


_OPENERS = {"onnx": _open_onnx, "llamacpp": _open_llama_cpp}


def _check(
    checkpoint: Checkpoint, exported: Backend, embed: Embed, limits: Limits, progress: Progress
) -> ParityReport:
    model, precision = checkpoint.model, exported.info.precision
    reference = TorchBackend(model, capacity=CAPACITY)
    _same_model(reference.info, exported.info)
    progress("verifying graphs", 0, 0)
    graphs = (
        _check_embedder(model, embed, limits._replace(graph=limits.embedder)),
        _check_base(model, reference, exported, limits),
        _check_micro_decoder(model, reference, exported, limits),
    )
    prompts = fixed_prompts(checkpoint)
    runs = list(_generations(reference, exported, prompts, progress))
    wanted = set(range(1, model.config.max_steps + 1))
    if missing := wanted - {len(group) for run in runs for group in run.reference}:
        raise ParityError(f"no generation had a group of {min(missing)} tokens: the gate has a hole")
    split = next((run for run in runs if run.divergence is not None), None)
    if split is not None and limits.identical:
        raise ParityError(
            f"generation {split.name}: token {split.divergence} of the answer differs from PyTorch's"
        )
    progress("verifying text", 0, 0)
    reading = _read(reference, exported, [(run.prompt, run.reference) for run in runs])
    if not reading.surprise <= limits.surprise:
        raise ParityError(
            f"base.logits: {reading.surprise:.3g} nats a token worse than PyTorch on its own text, "
            f"the limit at {precision} is {limits.surprise}: try another precision"
        )
    return ParityReport(
        ok=True,
        precision=precision,
        graphs=graphs,
        prompts=len(runs),
        identical=sum(run.divergence is None for run in runs),
        first_divergence=None if split is None else Divergence(split.index, split.divergence or 0),
        agreement=reading.agreement,
        logit_error=reading.logit_error,
        perplexity=reading.perplexity,
        reference_perplexity=reading.reference_perplexity,
    )


def _same_model(reference: ModelInfo, exported: ModelInfo) -> None:
    """`verify --against` may name any checkpoint."""
    for name in ("vocab_size", "hidden_size", "max_steps", "position_rule", "context_length", "eos_ids"):
        ours, theirs = getattr(exported, name), getattr(reference, name)
        if ours != theirs:
            raise ParityError(f"the bundle's {name} is {ours}, the checkpoint's {theirs}: another model")


# -- every graph on random inputs ------------------------------------------------------------------------


def _compare(graph: str, pairs: list[tuple[str, Array, Array]], limits: Limits) -> GraphParity:
    """(tensor, exported, reference) pairs -> their errors, or a ParityError at the worst place."""
    worst, relative = 0.0, 0.0
    for tensor, got, want in pairs:
        if got.shape != want.shape:
            raise ParityError(f"{graph}.{tensor}: shape {list(got.shape)}, PyTorch has {list(want.shape)}")
        error = np.abs(got.astype(np.float64) - want)
        # a probability is measured against 1: half of next to nothing is nothing
        size = 1.0 if tensor == "p_stop" else np.sqrt(np.mean(np.square(want, dtype=np.float64)))
        scale = float(size) + 1e-6
        share = float(np.sqrt(np.mean(np.square(error)))) / scale
        place = np.unravel_index(np.argmax(np.nan_to_num(error, nan=np.inf)), error.shape)
        if not share <= limits.graph:
            index = ", ".join(str(int(i)) for i in place)
            raise ParityError(
                f"{graph}.{tensor}: error {share:.3g} of its size (limit {limits.graph:g}), worst at "
                f"[{index}]: {got[place]:.6g}, PyTorch has {want[place]:.6g}"
            )
        worst, relative = max(worst, float(error.max())), max(relative, share)
    return GraphParity(graph, worst, relative)


def _check_embedder(model: Hamburger, embed: Embed, limits: Limits) -> GraphParity:
    random = np.random.default_rng(0)
    pairs = []
    for size in range(1, model.config.max_steps + 1):
        groups = random.integers(0, model.config.base.vocab_size, (5, size))
        got = embed(groups.tolist())
        with torch.inference_mode():
            want = model.embed(torch.from_numpy(groups), torch.full((5,), size))
        pairs.append((f"embeddings of {size} tokens", got, want.numpy()))
    return _compare("embedder", pairs, limits)


def _check_base(model: Hamburger, reference: TorchBackend, exported: Backend, limits: Limits) -> GraphParity:
    """A prompt in two calls with gaps in its positions, then single slots, on the same embeddings."""
    random = np.random.default_rng(1)
    vocab, pairs = model.config.base.vocab_size, []
    ledger = Ledger.of(exported.info)
    _restart(reference, exported)
    for call, sizes in enumerate(([1] * 7, [1, 2, 1, 1], [1], [2], [1])):
        sizes = [min(size, model.config.max_steps) for size in sizes]
        groups = [tuple(map(int, random.integers(0, vocab, size))) for size in sizes]
        positions = [ledger.append(group) for group in groups]
        rows = [0, len(groups) - 1] if call < 2 else [0]
        got, want = (backend.macro(groups, positions, rows) for backend in (exported, reference))
        pairs += [
            ("logits", got.logits.copy(), want.logits),
            ("p_stop", got.p_stop.copy(), want.p_stop),
            ("features", got.features.copy(), want.features.numpy()),
        ]
    return _compare("base", pairs, limits)


def _check_micro_decoder(
    model: Hamburger, reference: TorchBackend, exported: Backend, limits: Limits
) -> GraphParity:
    """Features are the reference's own for random tokens: rounding is calibrated for such, not for noise."""
    random = np.random.default_rng(2)
    config, pairs = model.config, []
    for _ in range(3):
        _restart(reference)
        tokens = [(token,) for token in map(int, random.integers(0, config.base.vocab_size, 5))]
        features = reference.macro(tokens, range(len(tokens)), [len(tokens) - 1]).features[0]
        exported.micro_begin(features.numpy())
        reference.micro_begin(features)
        for token in map(int, random.integers(0, config.base.vocab_size, config.max_steps - 1)):
            got, want = exported.micro(token), reference.micro(token)
            pairs.append(("logits", got.logits.copy(), want.logits))
            pairs.append(("p_stop", np.array([got.p_stop]), np.array([want.p_stop])))
    return _compare("micro_decoder", pairs, limits)


def _restart(*backends: Backend) -> None:
    for backend in backends:
        backend.truncate(0)


# -- whole generations -----------------------------------------------------------------------------------


def fixed_prompts(checkpoint: Checkpoint) -> list[list[int]]:
    """Through the model's own tokenizer and template; token ids spread over the vocabulary without one."""
    vocab = checkpoint.model.config.base.vocab_size
    if checkpoint.tokenizer is None:
        return [[(7 * i + 31 * n) % vocab for i in range(6 + n)] for n in range(len(PROMPTS))]
    tokenizer = Tokenizer(checkpoint.tokenizer)
    if checkpoint.chat_template is None:
        return [tokenizer.encode(prompt) for prompt in PROMPTS]
    template = ChatTemplate.from_json(checkpoint.chat_template)
    return [tokenizer.encode_parts(template.first_turn(prompt)) for prompt in PROMPTS]


@dataclass(frozen=True)
class _Run:
    index: int
    name: str
    prompt: list[int]
    reference: list[Group]
    divergence: int | None  # first token that differs


def _generations(
    reference: Backend, exported: Backend, prompts: list[list[int]], progress: Progress
) -> Iterator[_Run]:
    """Each prompt with groups of each forced length, and as the stop head likes it."""
    most = reference.info.max_steps
    kinds = [
        *(
            (f"groups of {n}", Decoding(NEW_TOKENS, force_group=n, ignore_eos=True))
            for n in range(1, most + 1)
        ),
        ("confidence 0.5", Decoding(NEW_TOKENS, confidence=0.5, ignore_eos=True)),
    ]
    for index, (prompt, (kind, decoding)) in enumerate((p, k) for p in prompts for k in kinds):
        progress("verifying text", index, len(prompts) * len(kinds))
        ours, theirs = (_generate(backend, prompt, decoding) for backend in (exported, reference))
        flat = [[token for group in groups for token in group] for groups in (ours, theirs)]
        places = (i for i, (a, b) in enumerate(zip(*flat, strict=False)) if a != b)
        yield _Run(index, f"{index} ({kind})", prompt, theirs, next(places, None))


def _generate(backend: Backend, prompt: list[int], decoding: Decoding) -> list[Group]:
    info = backend.info
    engine = Engine(backend)
    sampler = Sampler(SamplingSettings(), info.vocab_size, info.shortlist, probabilities=False)
    sampler.begin(prompt)
    return [step.tokens for step in engine.run([(t,) for t in prompt], decoding, sampler, reuse="none")]


class _Reading(NamedTuple):
    surprise: float
    agreement: float
    logit_error: float
    perplexity: float
    reference_perplexity: float


def _read(reference: Backend, exported: Backend, texts: list[tuple[list[int], list[Group]]]) -> _Reading:
    """Both read the reference's generations, merged as they were; scored on every group's first token."""
    nats: dict[Backend, list[float]] = {reference: [], exported: []}
    agree, worst = [], 0.0
    for prompt, groups in texts:
        fed = [*((token,) for token in prompt), *groups]
        rows = list(range(len(prompt) - 1, len(fed) - 1))
        ledger = Ledger.of(reference.info)
        positions = [ledger.append(group) for group in fed]
        targets = [group[0] for group in groups]
        _restart(reference, exported)
        scores = {backend: backend.macro(fed, positions, rows).logits for backend in (reference, exported)}
        for backend, logits in scores.items():
            nats[backend] += list(_surprise(logits, targets))
        agree += list(scores[exported].argmax(1) == scores[reference].argmax(1))
        worst = max(worst, float(np.abs(scores[exported] - scores[reference]).max()))
    ours, theirs = float(np.mean(nats[exported])), float(np.mean(nats[reference]))
    return _Reading(
        ours - theirs,
        float(np.mean(agree)),
        worst,
        float(np.exp(ours)),
        float(np.exp(theirs)),
    )


def _surprise(logits: Array, targets: list[int]) -> Array:
    """-log p(target) of each row"""
    wide = logits.astype(np.float64)
    peak = wide.max(1)
    chosen = wide[np.arange(len(targets)), targets]
    result: Array = np.log(np.exp(wide - peak[:, None]).sum(1)) + peak - chosen
    return result
