"""Drafts without a model call: guesses of the draft index, and copies from the text (lookup.py).

    prompt   will yuo come to the garden today ?
    answer   Will you come           -> copy: to the garden today ?
    answer   {"intent": "            -> index: the key that usually follows
    answer   {"city": "              -> index: a copy begins, usually with the word after "in"

Each guess has a probability. The loop takes the likelier of a guess and a micro token (see modes/draft.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from hamburger_edge.drafts.copied_words import COPY, START, CopyReader, Reading, Words
from hamburger_edge.drafts.draft_index import USUAL_RATES, DraftIndex, Guess, Rates, place_keys, run_keys
from hamburger_edge.drafts.lookup import Copies, Lookup

MOST = 24  # tokens drafted after the first
FEW_SLOTS = 64  # of a usual short text
HIGHEST = 10.0  # cost that a file may hold


@dataclass(frozen=True)
class Costs:
    """Costs of drafting, in units of a base call with one row behind FEW_SLOTS. They limit drafts.

    Attention makes a call and each further row dearer with every slot, but no micro step.
    """

    row: float = 0.2  # one more row in the base call
    micro: float = 0.25  # one micro step
    call_slots: float = 0.0  # that 1,000 slots more add to a call with one row
    row_slots: float = 0.0  # and to one more row

    @property
    def usable(self) -> bool:
        return min(self.row, self.micro) > 0 and all(0 <= cost <= HIGHEST for cost in astuple(self))

    def behind(self, slots: int) -> Costs:
        """Return the costs in units of a base call with one row behind this many slots."""
        thousands = max(0, slots - FEW_SLOTS) / 1000
        call = 1 + self.call_slots * thousands
        return Costs((self.row + self.row_slots * thousands) / call, self.micro / call)


USUAL_COSTS = Costs()


def rates_of(index: DraftIndex | None) -> Rates:
    return index.rates if index else USUAL_RATES


def worth_of_token(index: DraftIndex | None, costs: Costs) -> float:
    """Return what a kept token saves, in base calls: the average cost of one."""
    rates = rates_of(index)
    return min(1.0, (1 + costs.row * rates.rows) / rates.tokens)


class Drafter:
    """Guesses for one answer, from the draft index and from its text."""

    def __init__(
        self,
        prompt: Sequence[int],
        index: DraftIndex | None,
        words: Words | None = None,
        copies: Copies | None = None,  # of the answer so far, if it was cut; updated here
    ) -> None:
        index = index or None  # an empty one guesses nothing
        self._prompt, self._index = tuple(prompt), index
        chances = rates_of(index).copies
        self._lookup = Lookup(self._prompt, chances, Copies() if copies is None else copies)
        if index:
            self._reader = CopyReader(self._prompt, words, index.may_begin)
            self._readings = [Reading()]  # before each of the answer's tokens, and after the last

    def guess(self, answer: Sequence[int]) -> Guess | None:
        """Return the likeliest next token; `answer` includes the draft so far."""
        kept = self._lookup.follow(answer)
        if self._index is None:
            return self._lookup.guess()
        reading = self._reading(answer, kept)
        usual = self._usual(reading, self._index)
        if self._reader.expected(reading) is not None:
            return usual
        copied = self._lookup.guess()
        return copied if copied and (usual is None or copied.chance > usual.chance) else usual

    def begin(self) -> None:
        """Begin a new draft."""
        self._lookup.begin()

    def add(self, guess: Guess | None = None) -> None:
        """Record a drafted token: this guess, or a token that was not guessed."""
        self._lookup.add(guess)

    def settle(self, kept: int) -> None:
        """Record that the base kept the first `kept` tokens of the draft."""
        self._lookup.settle(kept)

    def _reading(self, answer: Sequence[int], kept: int) -> Reading:
        """Return what precedes the next token; the first `kept` tokens have been read."""
        del self._readings[kept + 1 :]
        for token in answer[kept:]:
            self._readings.append(self._reader.read(self._readings[-1], token))
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
