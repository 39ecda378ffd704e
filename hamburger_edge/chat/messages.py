"""A conversation as a list of {"role": ..., "content": ...}, the format of OpenAI and transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hamburger_edge.errors import InputError
from hamburger_edge.support.values import among, check_text, safe_repr

ROLES = ("system", "user", "assistant")


class Transcript(NamedTuple):
    system: str | None  # None: the template's default; "": no system text
    turns: tuple[str, ...]  # user, answer, user, ...


def read_messages(messages: Any, system: str | None = None) -> Transcript:
    """Check messages: an optional system message, then alternating user and assistant messages."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InputError(f"messages must be a list of messages, got {safe_repr(messages)}")
    turns: list[str] = []
    for index, message in enumerate(messages):
        role, text = _read(message, f"messages[{index}]")
        if role == "system":
            if index:
                raise InputError(f"messages[{index}]: the system's message must be the first")
            if system is not None:
                raise InputError("messages hold a system text: leave system out")
            system = text
            continue
        if role != ("user", "assistant")[len(turns) % 2]:
            wanted = "the user" if role == "assistant" else "the assistant"
            raise InputError(
                f"messages[{index}]: a message of {wanted} must come before: join or reorder them"
            )
        if role == "user" and not text:
            raise InputError(f"messages[{index}] is empty: say something")
        turns.append(text)
    return Transcript(system, tuple(turns))


def _read(message: Any, where: str) -> tuple[str, str]:
    if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
        raise InputError(f"{where} must have a role and a content and nothing else, got {safe_repr(message)}")
    role, content = message["role"], message["content"]
    if not among(role, ROLES):
        raise InputError(f"{where}.role must be {', '.join(ROLES)}, got {safe_repr(role)}")
    return role, check_text(content, f"{where}.content")
