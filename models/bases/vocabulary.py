"""A base without some of its tokens: the others are numbered anew.

tokens of the base   0 1 2 3 4 5
kept                 0 1   3   5
numbers              0 1   2   3

A tokenizer.json that has only the kept tokens, in the order of their numbers, says which ones they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hamburger_edge.errors import CheckpointError
from hamburger_edge.support.strict import read_json

if TYPE_CHECKING:
    from hamburger_edge.models.bases.weights import LoadedBase

TABLES = ("embed_tokens.weight", "lm_head.weight")  # with one row per token


def tokens_of(content: Any, source: object) -> dict[str, int]:
    """Return token -> number of the contents of a tokenizer.json, added tokens included."""
    try:
        vocabulary = dict(content["model"]["vocab"])
        vocabulary |= {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{source}: lists no token numbers, which a vocabulary is cut by: use a base with a BPE tokenizer"
        ) from error
    return vocabulary


def kept_rows(content: Any, tokenizer: str | Path, whole: Path | None) -> npt.NDArray[np.int64]:
    """Return the number that each token of the tokenizer.json has in the base's -> [kept tokens]"""
    if whole is None or not whole.is_file():
        raise CheckpointError(
            f"{tokenizer}: has some tokens of a base without tokenizer.json: put that beside its weights"
        )
    tokens, numbers = tokens_of(content, tokenizer), tokens_of(read_json(whole), whole)
    if unknown := sorted(tokens.keys() - numbers.keys()):
        raise CheckpointError(
            f"{tokenizer}: has the token {unknown[0]!r}, which {whole} lacks: use the tokenizer that belongs "
            "to this checkpoint"
        )
    if sorted(tokens.values()) != list(range(len(tokens))):
        raise CheckpointError(f"{tokenizer}: its {len(tokens)} tokens are not numbered 0, 1, 2, ...")
    return np.array([numbers[token] for token in sorted(tokens, key=tokens.__getitem__)], np.int64)


def keep_tokens(base: LoadedBase, tokenizer: Path) -> LoadedBase:
    """Return the base with the tokens of this tokenizer.json only."""
    return with_rows(base, kept_rows(read_json(tokenizer), tokenizer, base.tokenizer), tokenizer)


def with_rows(base: LoadedBase, rows: npt.NDArray[np.int64], tokenizer: Path | None) -> LoadedBase:
    """Return the base with these rows of its tables. Tokens that end an answer must be among them."""
    numbers = {int(row): number for number, row in enumerate(rows)}
    if missing := [token for token in base.eos_ids if token not in numbers]:
        raise CheckpointError(f"{tokenizer}: lacks token {missing[0]} of the base, which ends an answer")
    state = {name: tensor[rows] if name in TABLES else tensor for name, tensor in base.state.items()}
    return replace(
        base,
        config=replace(base.config, vocab_size=len(rows)),
        state=state,
        tokenizer=tokenizer,
        eos_ids=tuple(numbers[token] for token in base.eos_ids),
    )


def cut_tokenizer(content: Any, kept: Sequence[int]) -> Any:
    """Return the contents of a tokenizer.json with these tokens only, numbered anew in their old order."""
    numbers = {token: number for number, token in enumerate(sorted(kept))}
    model = content["model"]
    vocabulary = {text: numbers[token] for text, token in model["vocab"].items() if token in numbers}
    merges = [pair for pair in model["merges"] if all(part in vocabulary for part in merge_texts(pair))]
    added = [token | {"id": numbers[token["id"]]} for token in content.get("added_tokens") or ()]
    return content | {"model": model | {"vocab": vocabulary, "merges": merges}, "added_tokens": added}


def merge_texts(pair: Any) -> tuple[str, str, str]:
    """Return both parts of a merge, written as a list or with a blank between, and the token they become."""
    left, right = pair if isinstance(pair, list) else pair.split(" ", 1)
    return left, right, left + right
