"""One text by group: the groups in the KV cache, and the unread ones behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter

from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import Backend, Readout, Snapshot
from hamburger_edge.loop.ledger import Group, Ledger
from hamburger_edge.support.values import whole_in


class CachedText:
    """A backend with its ledger. Both always have the same slots."""

    def __init__(self, backend: Backend, *, chunk: int = 128) -> None:
        self.backend = backend
        self.info = backend.info
        self.chunk = chunk  # upper limit of slots per prefill call
        self.ledger = Ledger.of(self.info)
        # the conversation whose saved cache was restored; None: the cache was computed here
        self.owner: object = None
        self.unread: list[Group] = []  # generated or prompted, but not in the cache

    @property
    def sequence(self) -> list[Group]:
        """All groups so far: those in the cache, then the unread ones."""
        return [*self.ledger.groups, *self.unread]

    def check_groups(self, groups: Iterable[Iterable[int]]) -> list[Group]:
        """Return the groups as tuples; raise InputError for an invalid token or group size."""
        last, limit = self.info.vocab_size - 1, self.info.max_group_tokens
        checked = [tuple(whole_in("a token", token, 0, last) for token in group) for group in groups]
        for group in checked:
            if not 1 <= len(group) <= limit:
                raise InputError(f"a group holds 1 to {limit} tokens, got {len(group)}")
        return checked

    def keep(self, groups: Sequence[Group], owner: object = None) -> None:
        """Truncate the cache to the longest beginning that it shares with these groups of this owner."""
        self.align()
        self.truncate(self.ledger.match(list(groups), merged=False).slots if self.may_use(owner) else 0)
        self.unread = []

    def fill(self, groups: Sequence[Group], snapshot: Snapshot, owner: object) -> None:
        """Restore the cache from a snapshot with a slot for each of these groups, for this owner only."""
        self.keep([])
        for group in groups:
            self.ledger.append(group)
        self.backend.restore(snapshot, len(groups))
        self.owner = owner

    def drop(self, tokens: int) -> None:
        """Remove the last tokens of the newest step; at least one token of it must stay."""
        while tokens:
            if not self.unread:  # a verified step is in the cache
                self.unread = [self.ledger.groups[-1]]
                self.truncate(self.ledger.slots - 1)
            newest = self.unread.pop()
            if left := newest[:-tokens]:
                self.unread.append(left)
            tokens -= len(newest) - len(left)

    @property
    def unread_fits(self) -> bool:
        """Whether the cache has slots and positions for the unread groups."""
        return not self.unread or self.ledger.fits(*map(len, self.unread))

    @property
    def room(self) -> int:
        """Number of slots of one token that fit behind the unread groups."""
        return self.ledger.room_after(self.unread)

    @property
    def most_at_once(self) -> int:
        """The most slots of one call: one slot stays free in the empty cache, see `Backend.macro`."""
        return self.chunk if self.ledger.slots else min(self.chunk, max(1, self.info.cache_slots - 1))

    def read_chunk(self, left: int = 0) -> tuple[Readout, float]:
        """Append the next unread groups in one call; return its readout after the last, and its seconds.

        With `left` > 0 at least one group stays unread.
        """
        chunk = self.unread[: min(self.most_at_once, len(self.unread) - (left > 0))]
        readout, seconds = self.feed(chunk, [len(chunk) - 1])
        self.unread = self.unread[len(chunk) :]
        return readout, seconds

    def feed(self, groups: Sequence[Group], output_indices: Sequence[int]) -> tuple[Readout, float]:
        """Append slots; return the readout and the seconds inside the backend."""
        start = self.ledger.slots
        try:
            positions = [self.ledger.append(group) for group in groups]
            begin = perf_counter()
            readout = self.backend.macro(groups, positions, output_indices)
            return readout, perf_counter() - begin
        except BaseException:
            self.ledger.truncate(start)
            raise

    def truncate(self, slots: int) -> None:
        """Forget every slot from `slots` on."""
        if self.ledger.slots > slots:
            self.ledger.truncate(slots)
        if self.backend.slots > slots:
            self.backend.truncate(slots)
        if not slots:
            self.owner = None

    def may_use(self, owner: object) -> bool:
        """Whether this owner may use the cache's slots."""
        return self.owner is None or self.owner is owner

    def align(self) -> None:
        """After an interrupted call, keep only the slots that ledger and backend both have."""
        self.truncate(min(self.ledger.slots, self.backend.slots))
