"""A measure of repetition in a text's tokens."""

from __future__ import annotations

from collections.abc import Sequence


def four_gram_repetition(ids: Sequence[int]) -> float:
    """Return `1 - distinct 4-grams / 4-grams`; 0 for fewer than five tokens."""
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return 1 - len(set(grams)) / len(grams) if len(grams) > 1 else 0.0
