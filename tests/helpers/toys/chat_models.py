"""A chatting model on a scripted backend."""

from __future__ import annotations

from typing import Any

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.model import Model
from helpers.scripted_backend import ScriptedBackend, info

TURNS = ["hello", "tell me more\n", "日本 🙂?"]


def toy_model(
    tokenizer: Tokenizer, shape: dict[str, Any] | None = None, template: str = "chatml", **options: Any
) -> Model:
    fields = {
        "vocab_size": tokenizer.vocab_size,
        "cache_slots": 2000,
        "context_length": 4000,
        **(shape or {}),
    }
    backend = ScriptedBackend(info(**fields), **{"eos_rate": 0.05, "agreement": 0.7, **options})
    return Model(backend, tokenizer, ChatTemplate.preset(template))


def tokens_of(groups: list[tuple[int, ...]]) -> list[int]:
    return [token for group in groups for token in group]
