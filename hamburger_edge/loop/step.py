"""The tokens of one macro step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.scores import TopToken

FinishReason = Literal["eos", "length", "stop", "context", "cancelled"]


class Step(NamedTuple):
    """The tokens of one macro step."""

    tokens: Group
    probabilities: tuple[float, ...]  # of each token; empty unless requested
    stop_probabilities: tuple[float, ...]  # probability that the group should end with each token
    finish_reason: FinishReason | None  # set on the last step
    forced: int = 0  # number of tokens that the grammar forced
    groups: tuple[Group, ...] = ()  # the tokens by slot
    # The base's likeliest tokens at each token's place, if requested. Empty where the base neither chose nor
    # checked the token: merged unchecked, or forced by a structure.
    top: tuple[tuple[TopToken, ...], ...] = ()


class StepToken(NamedTuple):
    """A token of a step, and how it was chosen."""

    token: int
    probability: float = math.nan
    p_stop: float = 0.0  # probability that the group should end with it
    top: tuple[TopToken, ...] = ()
    logprob: float = 0.0  # to record if the base does not score the token
    forced: bool = False  # the only token that the grammar allowed


Slot = Sequence[StepToken]


def step_of(slots: Sequence[Slot], *, probabilities: bool) -> Step:
    """Return the step of these slots, with probabilities if requested."""
    tokens = [token for slot in slots for token in slot]
    return Step(
        tuple(token.token for token in tokens),
        tuple(token.probability for token in tokens) if probabilities else (),
        tuple(token.p_stop for token in tokens),
        None,
        sum(token.forced for token in tokens),
        groups_of(slots),
        tuple(token.top for token in tokens) if probabilities else (),
    )


def groups_of(slots: Sequence[Slot]) -> tuple[Group, ...]:
    return tuple(tuple(token.token for token in slot) for slot in slots)
