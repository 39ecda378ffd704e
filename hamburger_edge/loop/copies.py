"""Drafts copied out of the prompt: where an answer repeats it, what followed there probably follows here too.

prompt   will yuo come to the garden today ?
answer   Will you come           -> draft: to the garden today ?     of which the base keeps what it would say
"""

from __future__ import annotations

from collections.abc import Sequence

from hamburger_edge.loop.ledger import Group

MOST = 6  # tokens of a draft: each costs a row of the base's call
LONGEST = 4  # tokens of a match that count: longer ones are not surer


class Copies:
    """What one answer took from its prompt, and whether the last attempt went well."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._prompt = tuple(prompt)
        self._behind: dict[int, list[int]] = {}  # token -> the indices behind it in the prompt
        for index, token in enumerate(self._prompt, 1):
            self._behind.setdefault(token, []).append(index)
        self._next = 0  # index behind what was copied last
        self._holds = True  # the base kept some of the last draft
        self._start: tuple[int, int] | None = None  # of the draft in progress: in the prompt, in the answer

    def draft(self, answer: Sequence[int], least: int) -> Group:
        """What followed in the prompt after as many of the answer's last tokens as match, `least` or more.
        Of several such places the nearest at or behind what was copied last comes first. One token alone
        often matches by chance: it counts only while copying goes well."""
        length, index = 0, 0
        for place in self._behind.get(answer[-1], ()):
            found = self._match(answer, place)
            if (found, *self._nearness(place)) > (length, *self._nearness(index)):
                length, index = found, place
        if length < max(least, 1 if self._holds else 2):
            return ()
        self._start = index, len(answer)
        return self._prompt[index : index + MOST]

    def settle(self, said: int) -> None:
        """An answer of so many tokens is what the base left of the draft."""
        if self._start is not None:
            index, before = self._start
            kept = max(0, said - before)
            self._next, self._holds, self._start = index + kept, kept > 0, None

    def _nearness(self, place: int) -> tuple[bool, int]:
        return place >= self._next, -abs(place - self._next)

    def _match(self, answer: Sequence[int], place: int) -> int:
        most = min(LONGEST, len(answer), place)
        return next((n for n in range(1, most) if self._prompt[place - 1 - n] != answer[-1 - n]), most)
