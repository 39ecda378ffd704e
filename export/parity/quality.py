"""Third part of the parity gate: the loss of an exported model on given text.

Both models read conversations that weights and cache ranges were not fitted to, with answers merged into
groups of every length. At every position the two distributions over the next token are compared: is the
likeliest token equal, and how large is the Kullback-Leibler divergence (nats)? A group's further tokens count
where the original's micro decoder proposes the text's token. Where it proposes another one, the stop head or
the base refuses it, and a loss changes no answer.

The other parts find wrong connections. This one judges whether a correctly connected model loses more than is
usual for its precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hamburger_edge.bundle.manifest import KV_TYPES, PrecisionPlan
from hamburger_edge.export.parity.graphs import Array, restart
from hamburger_edge.export.parity.text import micro_steps, reading
from hamburger_edge.export.quantization.calibration_batches import judging_texts
from hamburger_edge.loop.backend import Backend
from hamburger_edge.loop.ledger import Group
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend
from hamburger_edge.support.progress import Progress

MOST_TOKENS = 2000  # of the answers that are compared: the share of equal tokens to within a percent
FEWEST_PROPOSED = 100  # positions; an untrained model proposes fewer of a text's tokens, and is judged by all


@dataclass(frozen=True)
class Loss:
    """The loss of an exported model against its float32 original."""

    agreement: float  # share of positions whose likeliest token is the same
    divergence: float  # mean, nats


# losses of bundles of SmolLM2 and `tiny` (docs/research/quantization.md), with room for other bases
EXPECTED = {
    "fp32": Loss(0.998, 1e-4),
    "fp16": Loss(0.99, 1e-3),
    "int8": Loss(0.88, 0.05),  # activations have 8 bits, too
    "int4": Loss(0.85, 0.15),
    "q8_0": Loss(0.95, 0.02),
}
EXPECTED |= {"f32": EXPECTED["fp32"], "f16": EXPECTED["fp16"]}
EXPECTED |= {"q4_0": EXPECTED["int4"], "q4_1": EXPECTED["int4"]}
# beyond these a model is refused: another token at every third position, or half a nat away
WORST = {name: Loss(min(loss.agreement, 0.65), max(loss.divergence, 0.5)) for name, loss in EXPECTED.items()}


@dataclass(frozen=True)
class Quality:
    """`known`: the largest known loss of this precision plan."""

    precision: str  # the part of the plan that loses most
    positions: int
    base: Loss
    further_positions: int  # of groups' tokens after the first, where PyTorch's micro decoder proposes them
    micro: Loss | None
    known: Loss

    @property
    def as_known(self) -> bool:
        return all(_within(loss, self.known) for loss in (self.base, self.micro) if loss is not None)

    @property
    def verdict(self) -> str:
        if self.as_known:
            return f"good: loses no more than {self.precision} is known to"
        return (
            f"poor: loses more than {self.precision} is known to ({self.known.divergence:g} nats, its token "
            f"at {self.known.agreement:.1%}): a finer precision keeps more of this model"
        )

    def __str__(self) -> str:
        lines = [f"quality         {_told(self.base)} of {self.positions} positions"]
        if self.micro is not None:
            lines.append(f"further tokens  {_told(self.micro)} of {self.further_positions}")
        return "\n".join([*lines, f"verdict         {self.verdict}"])


def _told(loss: Loss) -> str:
    return f"{loss.divergence:.4f} nats from PyTorch, its token at {loss.agreement:.1%}"


def _within(loss: Loss, limit: Loss) -> bool:
    return loss.agreement >= limit.agreement and loss.divergence <= limit.divergence


def worst_of(plan: PrecisionPlan, kv: str) -> str:
    """Return the part's precision that loses most; a cache rounds like weights of its type."""
    cache = next(name for name, dtype in KV_TYPES.items() if dtype == kv)
    return max((plan.base, plan.head, plan.graft, cache), key=lambda name: EXPECTED[name].divergence)


def refused(quality: Quality) -> Iterator[tuple[str, Loss]]:
    """Yield each graph that is useless, and its loss."""
    for graph, loss in (("base", quality.base), ("micro_decoder", quality.micro)):
        if loss is not None and not _within(loss, WORST[quality.precision]):
            yield graph, loss


def compare(
    checkpoint: Checkpoint, reference: TorchBackend, exported: Backend, precision: str, progress: Progress
) -> Quality:
    """Compare both models on text; `checkpoint` needs a tokenizer."""
    texts = list(judging_texts(checkpoint))
    answers = sum(len(group) for _, groups in texts for group in groups)
    texts = texts[:: -(-answers // MOST_TOKENS) or 1]
    base, micro, proposed = _Distances(), _Distances(), _Distances()
    draft_vocab = reference.info.draft_vocab
    for done, (prompt, groups) in enumerate(texts):
        progress("measuring quality", done, len(texts))
        infos = [backend.info for backend in (reference, exported)]
        room = min(min(info.cache_slots, info.context_length) for info in infos)
        prompt = prompt[: room // 2]
        tokens = np.cumsum([len(group) for group in groups])  # by the rule "token" positions count these
        groups = groups[: int(np.searchsorted(tokens, room - len(prompt), side="right"))]
        if not prompt or not groups:
            continue
        restart(reference, exported)
        pairs = (_scores(reference, backend, prompt, groups) for backend in (reference, exported))
        for group, (want, further_want), (got, further_got) in zip(groups, *pairs, strict=True):
            base.add(want, got)
            for token, *scores in zip(group[1:], further_want, further_got, strict=True):
                micro.add(*scores)
                choice = int(scores[0].argmax())
                if token == (choice if draft_vocab is None else int(draft_vocab[choice])):
                    proposed.add(*scores)
    if len(proposed.same) >= FEWEST_PROPOSED:
        micro = proposed
    further = micro.loss() if micro.same else None
    return Quality(precision, len(base.same), base.loss(), len(micro.same), further, EXPECTED[precision])


def _scores(
    reference: TorchBackend, backend: Backend, prompt: list[Group], groups: list[Group]
) -> Iterator[tuple[Array, list[Array]]]:
    """Yield the scores of each group's first token, and those of each further one."""
    for readout, next_groups in reading(backend, prompt, groups):
        first = [readout.logits[row].copy() for row in range(len(next_groups))]  # before the next call
        further = micro_steps(reference, backend, readout, [group[:-1] for group in next_groups])
        yield from zip(first, ([micro.logits for micro in scored] for scored in further), strict=True)


class _Distances:
    def __init__(self) -> None:
        self.same: list[bool] = []
        self.nats: list[float] = []

    def add(self, want: Array, got: Array) -> None:
        """Add the scores of one position."""
        self.same.append(bool(want.argmax() == got.argmax()))
        log_p, log_q = _log_softmax(want), _log_softmax(got)
        self.nats.append(float(np.sum(np.exp(log_p) * (log_p - log_q))))

    def loss(self) -> Loss:
        return Loss(float(np.mean(self.same)), float(np.mean(self.nats)))


def _log_softmax(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    result: Array = wide - np.log(np.exp(wide).sum())
    return result
