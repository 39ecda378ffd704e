"""Answers under a grammar without a model: something takes one of the tokens that are allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hamburger_edge.structured.grammar import Grammar, Grammars
from hamburger_edge.structured.structure import Structure

EOS = 2


def start(grammars: Grammars, **options: Any) -> Grammar:
    structure = Structure.of(**options)
    assert structure
    return grammars.start(structure)


def walk(grammar: Grammar, choose: Callable[[list[int]], int], most: int = 300) -> list[int]:
    """An answer: forced tokens, and of the others what `choose` takes."""
    said: list[int] = []
    while not grammar.ended and len(said) < most:
        token = grammar.forced
        if token is None:
            token = choose(np.flatnonzero(grammar.allowed()).tolist())
        if token == EOS:
            break
        grammar.consume(token)
        said.append(token)
    return said
