"""Choose the tokens of a base that a task needs: those of its examples, and those that are frequent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.bases.vocabulary import merge_texts, tokens_of

_BYTE = re.compile("<0x[0-9A-F]{2}>")
EXAMPLES_SHARE = 0.75  # of the tokens that are chosen; at least the others are the frequent ones


def frequent_tokens(content: Any, examples: Iterable[Sequence[int]], size: int, source: object) -> list[int]:
    """Return `size` tokens, in order, of a BPE tokenizer.json; `examples` are encoded with all its tokens.

    A kept token keeps the two tokens that it is merged from. Bytes and special tokens are kept, so any text
    can be encoded. Then come the examples' tokens by frequency, and last the first merges, which are the most
    frequent of the tokenizer's own text.
    """
    numbers = tokens_of(content, source)
    if content["model"].get("type", "BPE") != "BPE" or "merges" not in content["model"]:
        raise ConfigError(f"{source}: tokens can only be left out of a BPE tokenizer: leave out --tokens")
    parts: dict[int, tuple[int, int]] = {}  # of a token, by its first merge
    for left, right, whole in map(merge_texts, content["model"]["merges"]):
        parts.setdefault(numbers[whole], (numbers[left], numbers[right]))
    special = {token["id"] for token in content.get("added_tokens") or ()}
    # characters are needed where a tokenizer cannot write them as bytes; the alphabet of others is bytes
    characters = not content["model"].get("byte_fallback")
    kept = special | {
        number
        for token, number in numbers.items()
        if number not in parts and (characters or _BYTE.fullmatch(token))
    }
    if not len(kept) < size <= len(numbers):
        raise ConfigError(
            f"tokens is {size}, but this base has {len(numbers)}, of which {len(kept)} are needed for any "
            f"text: give {len(kept) + 1} to {len(numbers)}"
        )
    counts = Counter(token for ids in examples for token in ids)
    by_count = [token for token, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    by_rank = [*parts, *sorted(numbers.values())]
    by_examples = len(kept) + round(EXAMPLES_SHARE * (size - len(kept)))
    for tokens, limit in ((by_count, by_examples), (by_rank, size)):
        for token in tokens:
            needed = _with_parts(token, parts, kept)
            if len(kept) + len(needed) <= limit:
                kept |= needed
    return sorted(kept)


def _with_parts(token: int, parts: dict[int, tuple[int, int]], kept: set[int]) -> set[int]:
    """Return a token and all that it is merged from, without those that are kept already."""
    needed, open_tokens = set[int](), [token]
    while open_tokens:
        number = open_tokens.pop()
        if number not in kept and number not in needed:
            needed.add(number)
            open_tokens += parts.get(number, ())
    return needed
