"""Prompt lookup guesses the token that followed the same tokens before, in the prompt or in the answer.

    prompt   will yuo come to the garden today ?
    answer   Will you come                         -> to the garden today ?
    answer   first, add the flour. Then, add the   -> flour

The chance of a copy depends on how many tokens match before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hamburger_edge.drafts.draft_index import Guess
from hamburger_edge.errors import InputError
from hamburger_edge.support.values import whole_in

LONGEST_MATCH = 5  # upper limit of a match, in tokens
WEIGHT = 4  # of the measured probabilities, in copied tokens of this answer


def _zeros() -> list[int]:
    return [0] * LONGEST_MATCH


@dataclass
class Copies:
    """Counts of the copied tokens in one answer's drafts. A cut answer continues with them."""

    tried: list[int] = field(default_factory=_zeros)  # that the base checked, by length of their match
    kept: list[int] = field(default_factory=_zeros)  # number of these that it kept
    next: int = 0  # index of the text's token after the newest one that it kept

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Copies:
        """Read the fields. Older sessions have none, or one number for all lengths: theirs begin anew."""
        if not isinstance(state.get("tried"), list):
            return cls()
        counts = {
            name: [whole_in(f"copies {name}", count, 0, 2**62) for count in state[name]]
            for name in ("tried", "kept")
        }
        if any(len(by_length) != LONGEST_MATCH for by_length in counts.values()):
            raise InputError(f"copies must be counted by the {LONGEST_MATCH} lengths of a match")
        return cls(**counts, next=whole_in("copies next", state["next"], 0, 2**62))


class Lookup:
    """The text so far, prompt and answer, and where each of its tokens stands."""

    def __init__(self, prompt: Sequence[int], chances: Sequence[float], copies: Copies) -> None:
        self._chances, self._copies = chances, copies
        self._text: list[int] = []
        self._behind: dict[int, list[int]] = {}  # token -> indices after its occurrences
        self._drafted: list[Guess | None] = []  # per token of the draft: its copy
        self._append(prompt)
        self._prompt_length = len(prompt)

    def follow(self, answer: Sequence[int]) -> int:
        """Continue the prompt with this answer; return how many of its tokens were there before.

        The others replace those of a rejected draft.
        """
        begin = self._prompt_length
        kept = min(len(answer), len(self._text) - begin)
        while self._text[begin : begin + kept] != answer[:kept]:
            kept -= 1
        while len(self._text) > begin + kept:
            self._text.pop()
            if self._text:
                self._behind[self._text[-1]].pop()
        self._append(answer[kept:])
        return kept

    def _append(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            if self._text:
                self._behind.setdefault(self._text[-1], []).append(len(self._text))
            self._text.append(token)

    def begin(self) -> None:
        """Begin a new draft."""
        self._drafted = []

    def add(self, guess: Guess | None) -> None:
        """Record a drafted token: this guess, or another source's."""
        self._drafted.append(guess if guess and guess.match else None)

    def settle(self, kept: int) -> None:
        """Record that the base kept the first `kept` tokens of the draft."""
        copies = self._copies
        for number, guess in enumerate(self._drafted[: kept + 1]):
            if guess is not None:
                copies.tried[guess.match - 1] += 1
                if number < kept:
                    copies.kept[guess.match - 1] += 1
                    copies.next = guess.place + 1

    def guess(self) -> Guess | None:
        """Return the token after the longest match of the answer's last tokens.

        Among equally long matches, those at or after the last copy come first, then the nearest to it.
        """
        text, answered = self._text, len(self._text) - self._prompt_length
        places = self._behind.get(text[-1]) if answered else None
        if not places:
            return None
        match = 1
        while match < min(LONGEST_MATCH, answered):
            longer = [at for at in places if at > match and text[at - 1 - match] == text[-1 - match]]
            if not longer:
                break
            places, match = longer, match + 1
        after = max([self._copies.next, *(guess.place + 1 for guess in self._drafted if guess)])
        place = places[min(bisect_left(places, after), len(places) - 1)]
        return Guess(text[place], self._chance(match), place=place, match=match)

    def _chance(self, match: int) -> float:
        """Return the measured probability, corrected by this answer's own counts."""
        tried, kept = (counts[match - 1] for counts in (self._copies.tried, self._copies.kept))
        return (WEIGHT * self._chances[match - 1] + kept) / (WEIGHT + tried)
