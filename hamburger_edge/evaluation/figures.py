"""Compute the figures of a set of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from operator import eq
from typing import Any

import numpy as np

from hamburger_edge.evaluation.base_judge import JudgedAnswer


@dataclass(frozen=True)
class Figures:
    """The figures of a set of answers. A figure without data is None."""

    answers: int
    tokens: int
    tokens_per_step: float | None
    kv_compression: float | None  # tokens of the answers / KV entries of the answers
    kv_saved: float | None  # share of the whole cache that merging saved, prompts included
    nll: float | None  # nats per token under the judge
    nll_difference: float | None  # nll minus that of the judge's greedy answers to the same prompts
    agreement: float | None  # share of tokens that equal the judge's greedy choice after the same text
    first_agreement: float | None  # agreement of the first tokens of groups
    micro_agreement: float | None  # agreement of all other tokens
    prefix: float | None  # mean tokens in common with the model's plain decoding, from the start
    identical: float | None  # share of answers that equal the model's plain decoding
    base_prefix: float | None  # mean tokens in common with the judge's greedy answer
    repetition: float | None  # share of 4-grams that occurred before, mean over answers
    looping: float | None  # share of answers with a repetition of at least LOOP
    checked: int  # answers that have a check
    right: float | None  # share of these that pass
    group_shares: dict[int, float]

    def to_json(self) -> dict[str, Any]:
        return {name: round(v, 5) if isinstance(v, float) else v for name, v in asdict(self).items()}


def figures(
    answers: Sequence[JudgedAnswer],
    plain: Mapping[int, JudgedAnswer],
    base: Mapping[int, JudgedAnswer],
    *,
    straight: bool = False,
) -> Figures:
    """Compute the figures of `answers`.

    `plain`: the same model's plain decoding, by prompt number. `base`: the judge's greedy answers, by prompt
    number. With `straight`, prompts on which the base's answer loops are left out of `nll_difference`.
    """
    tokens = sum(len(answer.tokens) for answer in answers)
    slots = sum(answer.slots for answer in answers)
    before = sum(answer.prompt_tokens for answer in answers)
    sizes = Counter(len(group) for answer in answers for group in answer.groups)
    firsts = [i == 0 for answer in answers for group in answer.groups for i in range(len(group))]
    agrees = np.array([agree for answer in answers for agree in answer.agrees], dtype=bool)
    first = np.array(firsts, dtype=bool)
    rights = [answer.right for answer in answers if answer.right is not None]
    prefixes = [_common(answer, plain[answer.number]) for answer in answers]
    return Figures(
        answers=len(answers),
        tokens=tokens,
        tokens_per_step=_share(tokens, sizes.total()),
        kv_compression=_share(tokens, slots),
        kv_saved=_share(tokens - slots, before + tokens),
        nll=_nll(answers),
        nll_difference=_nll_difference(answers, base, straight),
        agreement=_mean(agrees),
        first_agreement=_mean(agrees[first]),
        micro_agreement=_mean(agrees[~first]),
        prefix=_mean(prefixes),
        identical=_mean([answer.tokens == plain[answer.number].tokens for answer in answers]),
        base_prefix=_mean([_common(answer, base[answer.number]) for answer in answers]),
        repetition=_mean([answer.repetition for answer in answers]),
        looping=_mean([answer.loops for answer in answers]),
        checked=len(rights),
        right=_mean(rights),
        group_shares={size: round(sizes[size] / sizes.total(), 4) for size in sorted(sizes)},
    )


def _nll(answers: Sequence[JudgedAnswer]) -> float | None:
    return _share(sum(answer.nll for answer in answers), sum(len(answer.tokens) for answer in answers))


def _nll_difference(
    answers: Sequence[JudgedAnswer], base: Mapping[int, JudgedAnswer], straight: bool
) -> float | None:
    """Return the difference over the same prompts."""
    kept = [answer for answer in answers if not (straight and base[answer.number].loops)]
    ours, theirs = _nll(kept), _nll([base[answer.number] for answer in kept])
    return None if ours is None or theirs is None else ours - theirs


def _common(one: JudgedAnswer, other: JudgedAnswer) -> int:
    return len(list(takewhile(bool, map(eq, one.tokens, other.tokens))))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


@dataclass(frozen=True)
class Reliability:
    """Expected against observed agreement of the stop head's proposals, in bins of the expected agreement.

    With stop rule "after", refused proposals count too. With rule "before" a refused token is never computed,
    so only generated tokens count.
    """

    expected: list[float | None]
    observed: list[float | None]
    counts: list[int]

    @property
    def error(self) -> float | None:
        """Mean of `abs(expected - observed)`, weighted by the counts of the bins."""
        bins = zip(self.expected, self.observed, self.counts, strict=True)
        gaps = [n * abs(e - o) for e, o, n in bins if e is not None and o is not None]
        return _share(sum(gaps), sum(self.counts))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "error": self.error}


def reliability(answers: Sequence[JudgedAnswer], bins: int = 10) -> Reliability:
    sure = np.array([s for answer in answers for s in answer.sure])
    held = np.array([h for answer in answers for h in answer.held], dtype=bool)
    which = np.minimum((sure * bins).astype(int), bins - 1)
    chosen = [which == i for i in range(bins)]
    return Reliability(
        expected=[_mean(sure[mask]) for mask in chosen],
        observed=[_mean(held[mask]) for mask in chosen],
        counts=[int(mask.sum()) for mask in chosen],
    )
