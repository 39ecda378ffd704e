"""Drafts without a model call: guesses of the draft index, and copies from the prompt (prompt lookup).

    prompt   will yuo come to the garden today ?
    answer   Will you come           -> copy: to the garden today ?
    answer   {"intent": "            -> index: the key that usually follows

Each guess has a probability. The loop takes the likelier of a guess and a micro token (see step.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hamburger_edge.loop.draft_index import COPY_CHANCES, DraftIndex, Guess

LONGEST_MATCH = 5  # upper limit of a match, in tokens
WEIGHT = 4  # of the measured probabilities, in copied tokens of this answer
MOST = 16  # tokens drafted after the first


@dataclass(frozen=True)
class Costs:
    """Costs of drafting, in units of a base call's fixed cost. They limit the length of drafts."""

    row: float = 0.2  # one more row in the base call
    micro: float = 0.25  # one micro step


USUAL_COSTS = Costs()


class Drafter:
    """Guesses for one answer, from the draft index and from its prompt."""

    def __init__(self, prompt: Sequence[int], index: DraftIndex | None) -> None:
        self._prompt, self._index = tuple(prompt), index
        self._chances = index.copy_chances if index else COPY_CHANCES
        self._behind: dict[int, list[int]] = {}  # token -> indices after its occurrences in the prompt
        for place, token in enumerate(self._prompt[:-1], 1):
            self._behind.setdefault(token, []).append(place)
        self._next = 0  # index after the token copied last
        self._tried = self._kept = 0  # counts of copied tokens: checked by the base, kept by it
        self._drafted: list[int] = []  # per token of the draft: its index in the prompt, or -1

    def guess(self, answer: Sequence[int]) -> Guess | None:
        """Return the likeliest next token; `answer` includes the draft so far."""
        found = self._index.guess(answer) if self._index else None
        copied = self.copy(answer)
        return copied if copied and (found is None or copied.chance > found.chance) else found

    def begin(self) -> None:
        """Begin a new draft."""
        self._drafted = []

    def add(self, place: int = -1) -> None:
        """Record a drafted token; `place` is its index in the prompt, -1 if it was not copied."""
        self._drafted.append(place)

    def settle(self, kept: int) -> None:
        """Record that the base kept the first `kept` tokens of the draft."""
        for number, place in enumerate(self._drafted[: kept + 1]):
            if place >= 0:
                self._tried += 1
                if number < kept:
                    self._kept, self._next = self._kept + 1, place + 1

    def copy(self, answer: Sequence[int]) -> Guess | None:
        """Return the prompt's token after the longest match of the answer's last tokens.

        Among equally long matches, those at or after the last copy come first, then the nearest to it.
        The probability is `(WEIGHT * measured + kept) / (WEIGHT + tried)`.
        """
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
