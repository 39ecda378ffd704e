"""How much a text repeats itself, by its tokens."""

from __future__ import annotations

from collections.abc import Sequence


def four_gram_repetition(ids: Sequence[int]) -> float:
    """Share of the text's 4-grams that occurred before in it; 0 for texts of fewer than five tokens."""
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return 1 - len(set(grams)) / len(grams) if len(grams) > 1 else 0.0
