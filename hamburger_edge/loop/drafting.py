"""Drafts that cost no model call: what a task's answers usually say next, and copies out of the prompt.

    prompt   will yuo come to the garden today ?
    answer   Will you come           -> copy: to the garden today ?
    answer   {"intent": "            -> index: the key that usually follows

Each guess has a chance. The loop compares it with the micro decoder's and drafts on while that pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hamburger_edge.loop.draft_index import COPY_CHANCES, DraftIndex, Guess

LONGEST_MATCH = 5  # tokens of a match that count
WEIGHT = 4  # copied tokens that the measured chances weigh as much as, against this answer's own
MOST = 16  # tokens of a draft


@dataclass(frozen=True)
class Costs:
    """Of a draft, in units of a base call's fixed cost: what decides how long drafts are."""

    row: float = 0.2  # one more row of the call
    micro: float = 0.25  # one micro step


USUAL_COSTS = Costs()


class Drafter:
    """Guesses for one answer, from the index and from its prompt."""

    def __init__(self, prompt: Sequence[int], index: DraftIndex | None) -> None:
        self._prompt, self._index = tuple(prompt), index
        self._chances = index.copy_chances if index else COPY_CHANCES
        self._behind: dict[int, list[int]] = {}  # token -> the places behind it in the prompt
        for place, token in enumerate(self._prompt[:-1], 1):
            self._behind.setdefault(token, []).append(place)
        self._next = 0  # place behind the token that was copied last
        self._tried = self._kept = 0  # copied tokens that the base checked, and kept
        self._drafted: list[int] = []  # of the draft in progress: where each token was copied from, or -1

    def guess(self, answer: Sequence[int]) -> Guess | None:
        """The likeliest token behind the answer and the draft so far."""
        found = self._index.guess(answer) if self._index else None
        copied = self.copy(answer)
        return copied if copied and (found is None or copied.chance > found.chance) else found

    def begin(self) -> None:
        """A new draft."""
        self._drafted = []

    def add(self, place: int = -1) -> None:
        """One more token is drafted; `place` is where in the prompt it was copied from."""
        self._drafted.append(place)

    def settle(self, kept: int) -> None:
        """The base kept so many tokens of the draft."""
        for number, place in enumerate(self._drafted[: kept + 1]):
            if place >= 0:
                self._tried += 1
                if number < kept:
                    self._kept, self._next = self._kept + 1, place + 1

    def copy(self, answer: Sequence[int]) -> Guess | None:
        """What follows in the prompt behind as many of the answer's last tokens as match. Of several such
        places, one at or behind the last copy comes first, then the nearest to it."""
        after = max(self._next, *(place + 1 for place in self._drafted)) if self._drafted else self._next
        best = max(
            ((self.match(answer, at), at >= after, -abs(at - after), at) for at in self._places(answer)),
            default=None,
        )
        if best is None:
            return None
        length, place = best[0], best[3]
        chance = (WEIGHT * self._chances[length - 1] + self._kept) / (WEIGHT + self._tried)
        return Guess(self._prompt[place], chance, place=place)

    def _places(self, answer: Sequence[int]) -> Sequence[int]:
        return self._behind.get(answer[-1], ()) if answer else ()

    def match(self, answer: Sequence[int], place: int) -> int:
        most = min(LONGEST_MATCH, len(answer), place)
        return next((n for n in range(1, most) if self._prompt[place - 1 - n] != answer[-1 - n]), most)
