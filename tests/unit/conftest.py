"""Grammars over the toy tokenizer."""

from __future__ import annotations

import pytest
from helpers.grammar_walks import EOS

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.structured.grammar import Grammars


@pytest.fixture(scope="session")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer.to_json, tokenizer.vocab_size, [EOS])
