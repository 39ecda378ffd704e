"""The ledger: the tokens and the position of every slot of the KV cache.

    tokens     The  cat | sat  on  the | mat  .          after a prompt of 2, a group of 3 and one of 2
    slot        0    1  |      2       |    3
    position    0    1  |      4       |    6            rule "token": that of its last token
                0    1  |      2       |    3            rule "slot": its index

The backend owns the KV arrays, the ledger describes them. Both always have the same number of slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.backend import ModelInfo, PositionRule

Group = tuple[int, ...]


class Match(NamedTuple):
    slots: int  # of the cache that match the prompt's beginning
    groups: int  # of the prompt that these slots cover


class Ledger:
    """The groups in the cache, in order, one slot each."""

    def __init__(
        self, rule: PositionRule, cache_slots: int, context_length: int, bytes_per_slot: int
    ) -> None:
        self.rule = rule
        self.cache_slots = cache_slots  # slots of the buffer
        self.context_length = context_length  # positions of the model; every position is below it
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
        """Size of a cache with one slot per token."""
        return self.tokens * self.bytes_per_slot

    @property
    def room(self) -> int:
        """Number of further slots of one token that fit."""
        return self.room_behind(self.slots)

    def room_behind(self, slots: int) -> int:
        """Return the same number for a cache truncated to its first `slots` slots."""
        used = slots if self.rule == "slot" or not slots else self._ends[slots - 1]
        return max(0, min(self.cache_slots - slots, self.context_length - used))

    def room_after(self, groups: Sequence[Group]) -> int:
        """Return the same number for a cache with these groups appended."""
        tokens = len(groups) if self.rule == "slot" else sum(map(len, groups))
        used = self.slots if self.rule == "slot" else self.tokens
        return max(0, min(self.cache_slots - self.slots - len(groups), self.context_length - used - tokens))

    def next_position(self, tokens: int) -> int:
        """Return the position of a next group of this many tokens."""
        return self.slots if self.rule == "slot" else self.tokens + tokens - 1

    def fits(self, *sizes: int) -> bool:
        """Whether the cache has slots and positions for further groups of these sizes."""
        last = self.slots + len(sizes) - 1 if self.rule == "slot" else self.tokens + sum(sizes) - 1
        return self.slots + len(sizes) <= self.cache_slots and last < self.context_length

    def append(self, group: Iterable[int]) -> int:
        """Append a group as the next slot and return its position."""
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
        """Return the first merged slot among the newest before `stop` that together hold `tokens` tokens.

        Return `stop` if none of them is merged.
        """
        first = slot = stop
        while tokens > 0 and slot > 0:
            slot -= 1
            tokens -= len(self.groups[slot])
            first = slot if len(self.groups[slot]) > 1 else first
        return first

    def check_room(self, kept: int, groups: Sequence[Group], covered: int) -> None:
        """Raise ContextFullError if a prompt does not fit; `kept` slots hold its first `covered` groups."""
        slots = kept + len(groups) - covered
        positions = slots if self.rule == "slot" else sum(map(len, groups))
        if positions > self.context_length:  # checked first: a larger cache would not help
            raise ContextFullError(
                f"the prompt needs {positions} positions but the model's context has "
                f"{self.context_length}: shorten it"
            )
        if slots > self.cache_slots:
            raise ContextFullError(
                f"the prompt needs {slots} slots but the cache holds {self.cache_slots}: "
                "shorten it, or load the model with a larger cache"
            )

    def match(self, prompt: list[Group], *, merged: bool) -> Match:
        """Match the beginning of the cache with the beginning of a prompt, in whole slots."""
        return match(self.groups, prompt, merged=merged)


def match(slots: Sequence[Group], prompt: list[Group], *, merged: bool) -> Match:
    """Match the beginning of these slots with the beginning of a prompt, in whole slots.

    A slot matches an equal group. With `merged`, a slot of several tokens also matches the same tokens as
    single groups of the prompt, so earlier answers stay compressed.
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
