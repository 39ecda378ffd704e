"""The ledger: which tokens sit in which slot of the KV cache, and at which position.

    tokens     The  cat | sat  on  the | mat  .          after a prompt of 2, a group of 3 and one of 2
    slot        0    1  |      2       |    3
    position    0    1  |      4       |    6            rule "token": that of the last token it holds
                0    1  |      2       |    3            rule "slot": its index

The backend owns the arrays; this owns what they mean. The two agree on the number of slots at all times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.backend import ModelInfo, PositionRule

Group = tuple[int, ...]


class Match(NamedTuple):
    slots: int  # of the cache that hold the prompt's beginning
    groups: int  # of the prompt that they cover


class Ledger:
    """The groups in the cache, in order; one slot each."""

    def __init__(
        self, rule: PositionRule, cache_slots: int, context_length: int, bytes_per_slot: int
    ) -> None:
        self.rule = rule
        self.cache_slots = cache_slots  # slots the buffer holds
        self.context_length = context_length  # positions the model knows; every slot sits below it
        self.bytes_per_slot = bytes_per_slot
        self.groups: list[Group] = []
        self._ends: list[int] = []  # tokens in the cache up to and including each slot

    @classmethod
    def of(cls, info: ModelInfo) -> Ledger:
        return cls(info.position_rule, info.cache_slots, info.context_length, info.kv_bytes_per_slot)

    @property
    def slots(self) -> int:
        return len(self.groups)

    @property
    def tokens(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def positions(self) -> list[int]:
        return list(range(self.slots)) if self.rule == "slot" else [end - 1 for end in self._ends]

    @property
    def bytes(self) -> int:
        return self.slots * self.bytes_per_slot

    @property
    def bytes_uncompressed(self) -> int:
        """What a cache with one slot for every token would take."""
        return self.tokens * self.bytes_per_slot

    @property
    def room(self) -> int:
        """How many more slots of one token fit."""
        return self.room_behind(self.slots)

    def room_behind(self, slots: int) -> int:
        """How many would, if the cache held so many of its slots."""
        used = slots if self.rule == "slot" or not slots else self._ends[slots - 1]
        return max(0, min(self.cache_slots - slots, self.context_length - used))

    def next_position(self, tokens: int) -> int:
        """Where a group of this many tokens would sit."""
        return self.slots if self.rule == "slot" else self.tokens + tokens - 1

    def fits(self, *sizes: int) -> bool:
        """Whether groups of so many tokens each still find slots and positions."""
        last = self.slots + len(sizes) - 1 if self.rule == "slot" else self.tokens + sum(sizes) - 1
        return self.slots + len(sizes) <= self.cache_slots and last < self.context_length

    def append(self, group: Iterable[int]) -> int:
        """Take the next slot for a group; returns its position."""
        group = tuple(group)
        if not group:
            raise InputError("a group holds at least one token")
        if not self.fits(len(group)):
            raise ContextFullError(
                f"a group of {len(group)} does not fit: {self.slots} of {self.cache_slots} slots are in use, "
                f"the last position is {self.context_length - 1}"
            )
        position = self.next_position(len(group))
        self._ends.append(self.tokens + len(group))
        self.groups.append(group)
        return position

    def truncate(self, slots: int) -> None:
        """Forget every slot from `slots` on."""
        if not 0 <= slots <= self.slots:
            raise InputError(f"cannot keep {slots} slots: {self.slots} are in use")
        del self.groups[slots:], self._ends[slots:]

    def first_merged(self, tokens: int, stop: int) -> int:
        """The first slot that holds several tokens, of the newest before `stop` that together hold so many;
        `stop` if there is none."""
        first = slot = stop
        while tokens > 0 and slot > 0:
            slot -= 1
            tokens -= len(self.groups[slot])
            first = slot if len(self.groups[slot]) > 1 else first
        return first

    def match(self, prompt: list[Group], *, merged: bool) -> Match:
        """How much of a prompt the cache already holds, in whole slots from the beginning."""
        return match(self.groups, prompt, merged=merged)


def match(slots: Sequence[Group], prompt: list[Group], *, merged: bool) -> Match:
    """How much of a prompt these slots hold, in whole slots from the beginning.

    A slot matches the same group. With `merged`, a slot of several tokens also matches the same
    tokens standing one by one in the prompt: what the model said earlier stays compressed.
    """
    covered = 0
    for slot, group in enumerate(slots):
        if prompt[covered : covered + 1] == [group]:
            covered += 1
        elif merged and prompt[covered : covered + len(group)] == [(token,) for token in group]:
            covered += len(group)
        else:
            return Match(slot, covered)
    return Match(len(slots), covered)
