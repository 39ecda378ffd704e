"""Words of a prompt, for baselines that count them."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Return words and punctuation marks in order, without case."""
    return _WORD.findall(text.casefold())
