"""Answers, counted: one set of figures for any set of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hamburger_edge.evaluation.reading import JudgedAnswer


@dataclass(frozen=True)
class Figures:
    """Of a set of answers; None where there is nothing to count."""

    answers: int
    tokens: int
    tokens_per_step: float | None
    kv_compression: float | None  # tokens of the answers for each KV entry they take
    kv_saved: float | None  # share of the whole cache that merging saved, prompts included
    nll: float | None  # nats a token under the judge
    nll_difference: float | None  # ... more than the judge's own greedy answers to the same prompts have
    agreement: float | None  # tokens that are the judge's own choice after the same text
    first_agreement: float | None  # the same of groups' first tokens
    micro_agreement: float | None  # and of all others
    prefix: float | None  # tokens in common with the model's own plain decoding, from the beginning on
    identical: float | None  # answers that equal it
    base_prefix: float | None  # tokens in common with the judge's own greedy answer
    repetition: float | None  # share of 4-grams that occurred before, mean of answers
    looping: float | None  # answers with a repetition of LOOP and more
    checked: int  # answers that could be right or wrong
    right: float | None  # of these
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
    """`plain`: the same model, one token a step; `base`: the judge's greedy answers; both by prompt number.

    With `straight` the base's looping answers do not count in the difference either.
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
    """Over the same prompts."""
    kept = [answer for answer in answers if not (straight and base[answer.number].loops)]
    ours, theirs = _nll(kept), _nll([base[answer.number] for answer in kept])
    return None if ours is None or theirs is None else ours - theirs


def _common(one: JudgedAnswer, other: JudgedAnswer) -> int:
    pairs = zip(one.tokens, other.tokens, strict=False)
    same = [a == b for a, b in pairs]
    return same.index(False) if False in same else len(same)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


@dataclass(frozen=True)
class Reliability:
    """Agreement that the stop head expects against agreement observed, by bins of what it expects.

    By stop rule "after", proposals that were refused count too. By rule "before" a refused token is never
    computed, so only what was said can be judged.
    """

    expected: list[float | None]
    observed: list[float | None]
    counts: list[int]

    @property
    def error(self) -> float | None:
        """Mean distance of the two, weighted by how often each bin occurs."""
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
