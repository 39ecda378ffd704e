"""Keep KV caches of conversations in memory, so that the next request of a conversation reuses them.

A client sends its whole conversation with every request. The prompt's tokens are compared with the cached
slots: an earlier answer stays compressed if its text has the tokens that were generated.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from hamburger_edge.loop.backend import Snapshot
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.ledger import Group, match


@dataclass(frozen=True, eq=False)
class Kept:
    owner: str  # owner of the API key; other owners get no access
    groups: tuple[Group, ...]  # one for each slot
    snapshot: Snapshot

    def goes_on_from(self, other: Kept) -> bool:
        """Return whether this conversation extends the other, which is then redundant."""
        return self.owner == other.owner and self.groups[: len(other.groups)] == other.groups


class Conversations:
    """The most recently used conversations. Thread-safe; snapshots are read-only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Kept] = []  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(array.nbytes for kept in self._kept for array in kept.snapshot.values())

    def nearest(self, owner: str, prompt: list[Group], merged: bool) -> tuple[Kept | None, int]:
        """Return the conversation whose snapshot shares the most slots with a prompt, and that number.

        The conversation becomes the most recently used.
        """
        with self._lock:
            best, slots = None, 0
            for kept in self._kept:
                if kept.owner == owner:
                    found = match(kept.groups, prompt, merged=merged).slots
                    if found > slots:
                        best, slots = kept, found
            if best is not None:
                self._kept.remove(best)
                self._kept.append(best)
        return best, slots

    def keep(self, engine: Engine, owner: str) -> None:
        """Keep the engine's cache."""
        if not self._most or not engine.ledger.slots:
            return
        new = Kept(owner, tuple(engine.ledger.groups), engine.backend.snapshot())
        with self._lock:
            others = [kept for kept in self._kept if not new.goes_on_from(kept)]
            self._kept = [*others, new][-self._most :]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
