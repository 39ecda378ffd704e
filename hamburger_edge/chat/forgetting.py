"""Conversations longer than the context go on: their oldest turns leave, the system text stays."""

from __future__ import annotations

from collections.abc import Sequence

from hamburger_edge.chat.inference import Inference
from hamburger_edge.chat.messages import Transcript
from hamburger_edge.loop.answer_run import MAX_TOKENS
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.loop.ledger import Group

ANSWER_SHARE = 0.25  # of the context, kept free for an answer at most
KEPT_SHARE = 0.5  # of the context, filled at most when turns leave: the others are read again, but rarely


def fits(info: ModelInfo, groups: Sequence[Group], tokens: int, max_tokens: int | None) -> bool:
    """Whether the cache has room for the groups, for a turn of so many tokens and for its answer."""
    answer = min(max_tokens or MAX_TOKENS, int(ANSWER_SHARE * _room(info)))
    slots = len(groups) + tokens + answer
    positions = slots if info.position_rule == "slot" else sum(map(len, groups)) + tokens + answer
    return slots <= info.cache_slots and positions <= info.context_length


def newest_turns(inference: Inference, transcript: Transcript, text: str) -> tuple[int, list[Group]]:
    """Return how many of the oldest messages leave, and the groups of the others, of one token each."""
    system, turns = transcript
    for first in range(2, len(turns), 2):
        groups = inference.conversation(Transcript(system, turns[first:]))
        if len(groups) + len(inference.turn(text, groups, system)) <= KEPT_SHARE * _room(
            inference.engine.info
        ):
            return first, groups
    return len(turns), []


def _room(info: ModelInfo) -> int:
    return min(info.cache_slots, info.context_length)
