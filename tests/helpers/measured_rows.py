"""Rows of an evaluation, as if so many answers had been measured."""

from __future__ import annotations

from typing import Any

from hamburger_edge.evaluation.asking import Row
from hamburger_edge.loop.dial import Recommended


def row(
    setting: Recommended,
    worse: int = 0,
    better: int = 0,
    faster: float = 1,
    prompts: int = 1000,
    **changes: Any,
) -> Row:
    fields: dict[str, Any] = {
        "score": 0.9 - (worse - better) / prompts,
        "figures": {"field_f1": 0.95},
        "lost": (worse - better) / prompts,
        "lost_error": 0.0,
        "same": 0.9,
        "tokens": 30,
        "tokens_per_step": 2.5,
        "slots_per_token": 0.4,
        "milliseconds": (90, 100, 110),
        "losses": (worse, better),
    }
    counts = {"faster": faster, "worse": worse, "better": better, "prompts": prompts}
    return Row(setting=setting, **{**fields, **counts, **changes})
