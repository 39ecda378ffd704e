"""Second part of the parity gate: whole generations, and reading them.

generations     fixed prompts through the engine, with groups of every length
reading         the exported model reads the reference's generations: extra surprise, and whether its stop
                probabilities follow the reference's
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.export.parity.graphs import Array, restart
from hamburger_edge.export.quantization.calibration_batches import judging_texts
from hamburger_edge.loop.backend import Backend, MicroReadout, Readout
from hamburger_edge.loop.ledger import Group, Ledger
from hamburger_edge.loop.modes.engine import Driver, Engine
from hamburger_edge.loop.modes.fixed_groups import groups_of_size
from hamburger_edge.loop.modes.merge import merge
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, SamplingSettings
from hamburger_edge.models.checkpoints.calibration_text import CALIBRATION
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend
from hamburger_edge.support.progress import Progress, no_progress

PROMPTS = (
    "Why is the sky blue?",
    "Write a short story about a lighthouse keeper.",
    "List five animals that live in the sea.",
)
NEW_TOKENS = 24
GROUPS_AT_ONCE = 32  # of the reference's micro decoder
AT_ONCE = 8  # groups in a call, as in a draft
LEAST_SPREAD = 0.05  # of stop probabilities: the least spread that errors are relative to


def fixed_prompts(checkpoint: Checkpoint) -> list[list[int]]:
    """Encode prompts with the model's tokenizer and template; without one, token ids over the vocabulary.

    With calibration text of its own, a model gets the prompts of the longest answers among the text kept for
    judging. On other prompts, and beyond the end of an answer, a task model's scores mean nothing.
    """
    vocab = checkpoint.model.config.base.vocab_size
    if checkpoint.tokenizer is None:
        return [[(7 * i + 31 * n) % vocab for i in range(6 + n)] for n in range(len(PROMPTS))]
    if checkpoint.file(CALIBRATION):
        texts = sorted(judging_texts(checkpoint), key=lambda text: -sum(map(len, text[1])))
        return [[token for (token,) in prompt] for prompt, _ in texts[: len(PROMPTS)]]
    tokenizer = Tokenizer(checkpoint.tokenizer)
    if checkpoint.chat_template is None:
        return [tokenizer.encode(prompt) for prompt in PROMPTS]
    template = ChatTemplate.from_json(checkpoint.chat_template)
    return [tokenizer.encode_parts(template.first_turn(prompt)) for prompt in PROMPTS]


@dataclass(frozen=True)
class Run:
    index: int
    name: str
    prompt: list[int]
    reference: list[Group]
    divergence: int | None  # first token that differs


def generations(
    reference: Backend, exported: Backend, prompts: list[list[int]], progress: Progress
) -> Iterator[Run]:
    """Answer one prompt with groups of each size, and every prompt with those of the stop head."""
    longest = reference.info.max_group_tokens
    tokens = new_tokens(longest)
    room = max(1, min(backend.info.cache_slots for backend in (reference, exported)) - tokens)
    prompts = [prompt[:room] for prompt in prompts]  # a template may bring a long system text
    fixed = (
        (prompts[size % len(prompts)], f"groups of {size}", groups_of_size(size))
        for size in range(1, longest + 1)
    )
    cases = [*fixed, *((prompt, "confidence 0.5", merge) for prompt in prompts)]
    for index, (prompt, kind, driver) in enumerate(cases):
        progress("verifying text", index, 2 * len(cases))  # then they are read
        ours, theirs = (_generate(backend, prompt, tokens, driver) for backend in (exported, reference))
        flat = [[token for group in groups for token in group] for groups in (ours, theirs)]
        differing = (i for i, (a, b) in enumerate(zip(*flat, strict=False)) if a != b)
        yield Run(index, f"{index} ({kind})", prompt, theirs, next(differing, None))


def new_tokens(max_group_tokens: int) -> int:
    """Return the tokens of each answer: enough for a group of every length."""
    return max(NEW_TOKENS, max_group_tokens)


def _generate(backend: Backend, prompt: list[int], tokens: int, driver: Driver) -> list[Group]:
    info = backend.info
    engine = Engine(backend)
    sampler = Sampler(SamplingSettings(), info.vocab_size, info.draft_vocab, top_probabilities=None)
    sampler.begin(prompt)
    decoding = Decoding(tokens, confidence=0.5, ignore_eos=True)
    steps = engine.run([(t,) for t in prompt], decoding, sampler, reuse="none", driver=driver)
    return [step.tokens for step in steps]


class ReadingComparison(NamedTuple):
    surprise: float
    agreement: float
    micro_surprise: float  # the same as `surprise`, of the groups' further tokens
    logit_error: float
    perplexity: float
    reference_perplexity: float
    stops: dict[str, float]  # of graphs: root mean square error of p_stop, relative to how p_stop varies


def read(
    reference: TorchBackend,
    exported: Backend,
    texts: list[tuple[list[int], list[Group]]],
    progress: Progress = no_progress,
) -> ReadingComparison:
    """Let both read the reference's generations in their groups; score every group's first token."""
    nats: dict[Backend, list[float]] = {reference: [], exported: []}
    micro: dict[Backend, list[float]] = {reference: [], exported: []}
    stops: dict[Backend, _Stops] = {backend: _Stops([], []) for backend in nats}
    listed = [] if reference.info.draft_vocab is None else reference.info.draft_vocab.tolist()
    row_of = {token: index for index, token in enumerate(listed)}  # among the micro logits
    agree, worst = [], 0.0
    for number, (prompt, groups) in enumerate(texts):
        progress("verifying text", len(texts) + number, 2 * len(texts))
        slots: list[Group] = [(token,) for token in prompt]
        targets = [group[0] for group in groups]
        restart(reference, exported)
        scores = {}
        for backend in (reference, exported):
            read_out = []
            for readout, next_groups in reading(backend, slots, groups):
                read_out.append(readout.logits.copy())
                micro[backend] += _read_groups(
                    reference, backend, readout, next_groups, row_of, stops[backend]
                )
            scores[backend] = np.concatenate(read_out)
        for backend, logits in scores.items():
            nats[backend] += list(_surprise(logits, targets))
        agree += list(scores[exported].argmax(1) == scores[reference].argmax(1))
        worst = max(worst, float(np.abs(scores[exported] - scores[reference]).max()))
    ours, theirs = float(np.mean(nats[exported])), float(np.mean(nats[reference]))
    return ReadingComparison(
        ours - theirs,
        float(np.mean(agree)),
        float(np.mean(micro[exported]) - np.mean(micro[reference])) if micro[reference] else 0.0,
        worst,
        float(np.exp(ours)),
        float(np.exp(theirs)),
        {
            name: stop_error(np.array(got), np.array(want))
            for name, got, want in zip(_Stops._fields, stops[exported], stops[reference], strict=True)
            if want  # no micro steps where groups are single tokens
        },
    )


def reading(
    backend: Backend, prompt: list[Group], groups: list[Group]
) -> Iterator[tuple[Readout, list[Group]]]:
    """Read the prompt and the groups into an empty cache; yield readouts with the tokens after each row.

    Calls are as long as those of an answer: at int8 a call's activations share a scale. PyTorch's do not,
    and it reads an answer in one call.
    """
    fed = groups[:-1]  # nothing follows the last one
    batch = max(1, len(fed)) if isinstance(backend, TorchBackend) else AT_ONCE
    parts = [(prompt, [len(prompt) - 1], groups[:1])]
    for start in range(0, len(fed), batch):
        then = fed[start : start + batch]
        parts.append((then, list(range(len(then))), groups[start + 1 : start + 1 + len(then)]))
    ledger = Ledger.of(backend.info)
    for read_now, rows, next_groups in parts:
        yield backend.macro(read_now, [ledger.append(group) for group in read_now], rows), next_groups


class _Stops(NamedTuple):
    base: list[float]  # before every group
    micro_decoder: list[float]  # after each of its tokens that another may follow


def micro_steps(
    reference: TorchBackend, backend: Backend, readout: Readout, groups: list[Group]
) -> Iterator[list[MicroReadout]]:
    """Yield what the micro decoder makes of each token of the groups after a readout's rows.

    The reference takes many groups in a call.
    """
    if backend is reference:
        for start in range(0, len(groups), GROUPS_AT_ONCE):
            part = groups[start : start + GROUPS_AT_ONCE]
            rows = [row for row, group in enumerate(part) if group]
            features = readout.features[[start + row for row in rows]]
            steps = iter(reference.micro_groups(features, [part[row] for row in rows]) if rows else ())
            yield from (next(steps) if group else [] for group in part)
        return
    for row, group in enumerate(groups):
        if group:
            backend.micro_begin(readout.features[row])
        scored = (backend.micro(token) for token in group)
        yield [MicroReadout(micro.logits.copy(), micro.p_stop) for micro in scored]


def _read_groups(
    reference: TorchBackend,
    backend: Backend,
    readout: Readout,
    groups: list[Group],
    row_of: dict[int, int],
    stops: _Stops,
) -> list[float]:
    """Return the surprise at the further tokens of the groups that follow a readout's rows."""
    nats: list[float] = []
    fed = [group[: backend.info.max_group_tokens - 1] for group in groups]
    steps = micro_steps(reference, backend, readout, fed)
    for row, (group, scored) in enumerate(zip(groups, steps, strict=True)):
        stops.base.append(float(readout.p_stop[row]))
        stops.micro_decoder.extend(float(micro.p_stop) for micro in scored)
        for following, micro in zip(group[1:], scored, strict=False):
            nats += list(_surprise(micro.logits[None], [row_of.get(following, following)]))
    return nats


def stop_error(got: Array, want: Array) -> float:
    """Return the error relative to the spread: 1 or more if `got` is constant and `want` is not."""
    return float(np.sqrt(np.mean((got - want) ** 2)) / max(want.std(), LEAST_SPREAD))


def _surprise(logits: Array, targets: list[int]) -> Array:
    """-log p(target) of each row"""
    wide = logits.astype(np.float64)
    peak = wide.max(1)
    chosen = wide[np.arange(len(targets)), targets]
    result: Array = np.log(np.exp(wide - peak[:, None]).sum(1)) + peak - chosen
    return result
