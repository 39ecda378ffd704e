"""Drafts without a model call: guesses of the draft index, and copies from the prompt (prompt lookup).

    prompt   will yuo come to the garden today ?
    answer   Will you come           -> copy: to the garden today ?
    answer   {"intent": "            -> index: the key that usually follows
    answer   {"city": "              -> index: a copy begins, usually with the word after "in"

Each guess has a probability. The loop takes the likelier of a guess and a micro token (see step.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hamburger_edge.drafts.copied_words import COPY, START, CopyReader, Reading, Words
from hamburger_edge.drafts.draft_index import COPY_CHANCES, DraftIndex, Guess, place_keys, run_keys

LONGEST_MATCH = 5  # upper limit of a match, in tokens
WEIGHT = 4  # of the measured probabilities, in copied tokens of this answer
MOST = 24  # tokens drafted after the first


@dataclass(frozen=True)
class Costs:
    """Costs of drafting, in units of a base call's fixed cost. They limit the length of drafts."""

    row: float = 0.2  # one more row in the base call
    micro: float = 0.25  # one micro step


USUAL_COSTS = Costs()


@dataclass
class Copies:
    """Counts of the copied tokens in one answer's drafts. A cut answer continues with them."""

    tried: int = 0  # number of copied tokens that the base checked
    kept: int = 0  # number of these that it kept
    next: int = 0  # index of the prompt's token after the newest one that it kept


def worth_of_token(index: DraftIndex | None, costs: Costs) -> float:
    """Return what a kept token saves, in base calls: the average cost of one. Without an index 1."""
    return min(1.0, (1 + costs.row * index.rates.rows) / index.rates.tokens) if index else 1.0


class Drafter:
    """Guesses for one answer, from the draft index and from its prompt."""

    def __init__(
        self,
        prompt: Sequence[int],
        index: DraftIndex | None,
        words: Words | None = None,
        copies: Copies | None = None,  # of the answer so far, if it was cut; updated here
    ) -> None:
        index = index or None  # an empty one guesses nothing
        self._prompt, self._index = tuple(prompt), index
        self._chances = index.rates.copies if index else COPY_CHANCES
        self._behind: dict[int, list[int]] = {}  # token -> indices after its occurrences in the prompt
        for position, token in enumerate(self._prompt[:-1], 1):
            self._behind.setdefault(token, []).append(position)
        self._copies = copies or Copies()
        self._drafted: list[int] = []  # per token of the draft: its index in the prompt, or -1
        if index:
            self._reader = CopyReader(self._prompt, words, index.may_begin)
            self._read: list[int] = []  # the answer's tokens that have been read
            self._readings = [Reading()]  # before each of them, and after the last

    def guess(self, answer: Sequence[int]) -> Guess | None:
        """Return the likeliest next token; `answer` includes the draft so far."""
        if self._index is None:
            return self.copy(answer)
        reading = self._reading(answer)
        usual = self._usual(reading, self._index)
        if self._reader.expected(reading) is not None:
            return usual
        copied = self.copy(answer)
        return copied if copied and (usual is None or copied.chance > usual.chance) else usual

    def _reading(self, answer: Sequence[int]) -> Reading:
        """Return what precedes the next token."""
        same = min(len(answer), len(self._read))
        while self._read[:same] != answer[:same]:  # a rejected draft
            same -= 1
        del self._read[same:], self._readings[same + 1 :]
        for token in answer[same:]:
            self._readings.append(self._reader.read(self._readings[-1], token))
            self._read.append(token)
        return self._readings[-1]

    def _usual(self, reading: Reading, index: DraftIndex) -> Guess | None:
        """Return the likelier of the copied run's next token and the usual token after it."""
        run, token = None, self._reader.expected(reading)
        if token is not None and reading.rest:
            run = Guess(token, index.rates.word)
        elif token is not None and (entry := index.first(run_keys(reading.skeleton, token))):
            run = entry._replace(token=token)
        usual = index.guess(reading.skeleton)
        if usual and usual.token == COPY:
            usual = self._word(reading, index, usual)
        if usual and run:  # the run ends
            usual = Guess(usual.token, usual.chance * (1 - run.chance), usual.floor * (1 - run.chance))
        return max(filter(None, (run, usual)), key=lambda guess: guess.chance, default=None)

    def _word(self, reading: Reading, index: DraftIndex, begins: Guess) -> Guess | None:
        """Return the first token of the word that a copied run most probably begins with."""
        best = None
        for position, word in self._reader.words.items():
            before = self._prompt[position - 1] if position else START
            entry = index.first(place_keys(reading.skeleton, before, self._prompt[position]))
            if entry and (best is None or entry.chance > best.chance):
                best = entry._replace(token=word.tokens[0])
        return best and Guess(best.token, begins.chance * best.chance, begins.floor * best.floor)

    def begin(self) -> None:
        """Begin a new draft."""
        self._drafted = []

    def add(self, position: int = -1) -> None:
        """Record a drafted token; `position` is its index in the prompt, -1 if it was not copied."""
        self._drafted.append(position)

    def settle(self, kept: int) -> None:
        """Record that the base kept the first `kept` tokens of the draft."""
        copies = self._copies
        for number, position in enumerate(self._drafted[: kept + 1]):
            if position >= 0:
                copies.tried += 1
                if number < kept:
                    copies.kept, copies.next = copies.kept + 1, position + 1

    def copy(self, answer: Sequence[int]) -> Guess | None:
        """Return the prompt's token after the longest match of the answer's last tokens.

        Among equally long matches, those at or after the last copy come first, then the nearest to it.
        The probability is `(WEIGHT * measured + kept) / (WEIGHT + tried)`.
        """
        after = max([self._copies.next, *(position + 1 for position in self._drafted)])
        best = max(
            ((self.match(answer, at), at >= after, -abs(at - after), at) for at in self._places(answer)),
            default=None,
        )
        if best is None:
            return None
        length, position = best[0], best[3]
        chance = (WEIGHT * self._chances[length - 1] + self._copies.kept) / (WEIGHT + self._copies.tried)
        return Guess(self._prompt[position], chance, place=position)

    def _places(self, answer: Sequence[int]) -> Sequence[int]:
        return self._behind.get(answer[-1], ()) if answer else ()

    def match(self, answer: Sequence[int], position: int) -> int:
        limit = min(LONGEST_MATCH, len(answer), position)
        return next((n for n in range(1, limit) if self._prompt[position - 1 - n] != answer[-1 - n]), limit)
