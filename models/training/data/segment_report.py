"""How a base's entropies cut its answers into groups: figures, and a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.segmentation import (
    CutReport,
    EntropyRule,
    cut_by_entropy,
    report_cuts,
)

# the paper's, and two that merge more
RULES = (EntropyRule(0.05, 0.3), EntropyRule(0.2, 0.5), EntropyRule(0.5, 0.7))
Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class SegmentReport:
    answers: int
    mean_entropy: float  # nats per token
    max_group_tokens: int
    cuts: tuple[CutReport, ...]  # one per rule
    samples: tuple[tuple[str, ...], ...]  # one answer's groups as text, per rule; empty without a tokenizer

    def to_json(self) -> dict[str, Any]:
        cuts = [{**asdict(cut), "tokens_per_group": cut.tokens_per_group} for cut in self.cuts]
        return {**asdict(self), "cuts": cuts}

    def __str__(self) -> str:
        return render(self, colour=False)


def report(
    data: DistilledData,
    rules: Sequence[EntropyRule] = RULES,
    *,
    max_group_tokens: int = 4,
    decode: Decode | None = None,
    sample: int = 0,
) -> SegmentReport:
    """Report each rule's groups of all answers; with `decode`, also answer `sample` as text."""
    spans = answer_spans(data)
    entropies = [data.entropies[a:b].astype(np.float32) for a, b in spans]
    samples = []
    if decode is not None and spans:
        start, stop = spans[sample % len(spans)]
        for rule in rules:
            sizes = cut_by_entropy(data.entropies[start:stop].astype(np.float32), max_group_tokens, rule)
            ends = start + np.cumsum(sizes)
            samples.append(
                tuple(decode(data.ids[e - n : e].tolist()) for e, n in zip(ends, sizes, strict=True))
            )
    return SegmentReport(
        answers=len(spans),
        mean_entropy=float(np.concatenate(entropies).mean()) if entropies else 0.0,
        max_group_tokens=max_group_tokens,
        cuts=tuple(report_cuts(entropies, max_group_tokens, rule) for rule in rules),
        samples=tuple(samples),
    )


def answer_spans(data: DistilledData) -> list[tuple[int, int]]:
    """Yield [start, stop) of every answer; a conversation may hold several."""
    answer = np.concatenate([[False], data.roles == ANSWER, [False]])
    edges = np.flatnonzero(answer[1:] != answer[:-1])
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def render(report: SegmentReport, *, colour: bool = True) -> str:
    """Render for a terminal: a table, and the sample with groups in alternating colours (or brackets)."""
    lines = [f"{report.answers} answers, mean entropy {report.mean_entropy:.2f} nats a token", ""]
    sizes = range(1, report.max_group_tokens + 1)
    lines.append("  low  ratio  tokens/group  " + "  ".join(f"{f'size {n}':>7}" for n in sizes))
    for cut in report.cuts:
        shares = (cut.histogram[n] / max(cut.groups, 1) for n in sizes)
        row = "  ".join(f"{share:7.1%}" for share in shares)
        lines.append(f"{cut.rule.low:5.2f}  {cut.rule.ratio:5.2f}  {cut.tokens_per_group:12.2f}  {row}")
    for cut, groups in zip(report.cuts, report.samples, strict=False):
        lines += ["", f"low {cut.rule.low}, ratio {cut.rule.ratio}:"]
        lines.append("".join(_coloured(g, n) for n, g in enumerate(groups)) if colour else _bracketed(groups))
    return "\n".join(lines) + "\n"


def _coloured(group: str, number: int) -> str:
    """Colour groups alternately; colours end with each line, or terminals would fill it."""
    ground = (153, 229)[number % 2]
    return "\n".join(f"\x1b[30;48;5;{ground}m{line}\x1b[0m" if line else "" for line in group.split("\n"))


def _bracketed(groups: Sequence[str]) -> str:
    return "".join(f"[{group}]" for group in groups)
