"""Compute the figures of a set of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hamburger_edge.evaluation.likelihood.base_judge import JudgedAnswer


@dataclass(frozen=True)
class Figures:
    """The figures of a set of answers. A figure without data is None."""

    answers: int
    tokens: int
    tokens_per_step: float | None
    nll: float | None  # nats per token under the judge
    nll_difference: float | None  # nll minus that of the judge's greedy answers to the same prompts
    agreement: float | None  # share of tokens that equal the judge's greedy choice after the same text
    first_agreement: float | None  # agreement of the first tokens of groups
    micro_agreement: float | None  # agreement of all other tokens
    repetition: float | None  # share of 4-grams that occurred before, mean over answers
    looping: float | None  # share of answers with a repetition of at least LOOP
    checked: int  # answers that have a check
    right: float | None  # share of these that pass
    group_shares: dict[int, float]

    def to_json(self) -> dict[str, Any]:
        return {name: round(v, 5) if isinstance(v, float) else v for name, v in asdict(self).items()}


def figures(
    answers: Sequence[JudgedAnswer], base: Mapping[int, JudgedAnswer], *, straight: bool = False
) -> Figures:
    """Compute the figures of `answers`.

    `base`: the judge's greedy answers, by prompt number. With `straight`, prompts on which the base's answer
    loops are left out of `nll_difference`.
    """
    tokens = sum(len(answer.tokens) for answer in answers)
    sizes = Counter(len(group) for answer in answers for group in answer.groups)
    first = np.array(
        [i == 0 for answer in answers for group in answer.groups for i in range(len(group))], dtype=bool
    )
    agrees = np.array([agree for answer in answers for agree in answer.agrees], dtype=bool)
    rights = [answer.right for answer in answers if answer.right is not None]
    return Figures(
        answers=len(answers),
        tokens=tokens,
        tokens_per_step=_share(tokens, sizes.total()),
        nll=_nll(answers),
        nll_difference=_nll_difference(answers, base, straight),
        agreement=_mean(agrees),
        first_agreement=_mean(agrees[first]),
        micro_agreement=_mean(agrees[~first]),
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


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None
