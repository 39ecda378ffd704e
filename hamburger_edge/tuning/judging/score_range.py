"""The range of a score over all prompts, from its mean over some of them."""

from __future__ import annotations

import math

ERRORS = 1.96  # standard errors: the range holds the score of all prompts in 95% of all samples


def score_range(score: float, prompts: int) -> tuple[float, float]:
    """Return Wilson's interval of a mean of scores from 0 to 1.

    For scores between 0 and 1 it is wider than needed: their variance is at most `score * (1 - score)`.
    """
    square = ERRORS**2
    middle = score + square / (2 * prompts)
    spread = ERRORS * math.sqrt((score * (1 - score) + square / (4 * prompts)) / prompts)
    scale = 1 + square / prompts
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
