"""The slots of the KV cache as the loop sees them: a ledger and a backend that say the same."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from hamburger_edge.errors import ContextFullError
from hamburger_edge.loop.backend import Backend, Readout
from hamburger_edge.loop.ledger import Group, Ledger


class Slots:
    def __init__(self, backend: Backend, chunk: int) -> None:
        self.backend = backend
        self.info = backend.info
        self.chunk = chunk  # most slots one prefill call appends
        self.ledger = Ledger.of(self.info)
        # whose the cache is: a conversation that brought its slots from elsewhere; None: computed here
        self.owner: object = None

    def _at_once(self) -> int:
        """Groups that may be read in one call; into the empty cache, not as many as it holds (see
        `Backend.macro`)."""
        return self.chunk if self.ledger.slots else min(self.chunk, max(1, self.info.cache_slots - 1))

    def _feed(self, groups: Sequence[Group], rows: Sequence[int]) -> tuple[Readout, float]:
        """Append slots; also says how long the backend took."""
        start = self.ledger.slots
        try:
            positions = [self.ledger.append(group) for group in groups]
            begin = perf_counter()
            readout = self.backend.macro(groups, positions, rows)
            return readout, perf_counter() - begin
        except BaseException:
            self.ledger.truncate(start)
            raise

    def _truncate(self, slots: int) -> None:
        if self.ledger.slots > slots:
            self.ledger.truncate(slots)
        if self.backend.slots > slots:
            self.backend.truncate(slots)
        if not slots:
            self.owner = None

    def _may_use(self, owner: object) -> bool:
        return self.owner is None or self.owner is owner

    def _align(self) -> None:
        """After an interrupted call: trust only the slots that ledger and backend both have."""
        self._truncate(min(self.ledger.slots, self.backend.slots))

    def _check_room(self, kept: int, groups: list[Group], covered: int) -> None:
        slots = kept + len(groups) - covered
        positions = slots if self.info.position_rule == "slot" else sum(map(len, groups))
        if positions > self.info.context_length:  # first: no larger cache would help
            raise ContextFullError(
                f"the prompt needs {positions} positions but the model's context has "
                f"{self.info.context_length}: shorten it"
            )
        if slots > self.info.cache_slots:
            raise ContextFullError(
                f"the prompt needs {slots} slots but the cache holds {self.info.cache_slots}: "
                "shorten it, or load the model with a larger cache"
            )
