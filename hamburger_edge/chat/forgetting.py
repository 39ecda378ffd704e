"""Conversations longer than the context go on: their oldest turns leave, the system text stays."""

from __future__ import annotations

from collections.abc import Sequence

from hamburger_edge.chat.inference import Inference
from hamburger_edge.chat.messages import Transcript
from hamburger_edge.loop.answer_run import MAX_TOKENS
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.loop.ledger import Group, Ledger

ANSWER_SHARE = 0.25  # of the context, kept free for an answer at most
KEPT_SHARE = 0.5  # of the context, filled at most when turns leave: the others are read again, but rarely


def fits(info: ModelInfo, groups: Sequence[Group], tokens: int, max_tokens: int | None) -> bool:
    """Whether an empty cache has room for the groups, for a turn of so many tokens and for its answer."""
    empty = Ledger.of(info)
    answer = min(max_tokens or MAX_TOKENS, int(ANSWER_SHARE * empty.room))
    return empty.fits(*map(len, groups), *[1] * (tokens + answer))


def newest_turns(inference: Inference, transcript: Transcript, text: str) -> tuple[int, list[Group]]:
    """Return how many of the oldest messages leave, and the groups of the others, of one token each."""
    (system, turns), limit = transcript, KEPT_SHARE * Ledger.of(inference.engine.info).room
    for first in range(2, len(turns), 2):
        groups = inference.conversation(Transcript(system, turns[first:]))
        if len(groups) + len(inference.turn(text, groups, system)) <= limit:
            return first, groups
    return len(turns), []
