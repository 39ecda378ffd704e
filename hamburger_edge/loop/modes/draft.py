"""Drafts of mode verify: the base's token, then forced, guessed or micro tokens while another one pays.

Before the prompt is read there is no token of the base: a draft then holds guesses only, from the first on.

    stands   the probability that the base keeps the whole draft
    worth    what a kept token saves on average
    wanted   the probability that there is no guess, or a wrong one

Costs are in units of a base call.

    micro step   runs if   worth * stands * wanted * (1 - p_stop) > cost of its micro steps and of a row
    token        joins if  worth * stands * p >= cost of a row, or if it is merged, without a row

Where calls have an even number of slots, the second of two costs nothing, and the first as much as both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hamburger_edge.drafts.draft_index import Guess
from hamburger_edge.drafts.drafting import MOST, Drafter, worth_of_token
from hamburger_edge.loop.answer_run import AnswerRun, BaseRow
from hamburger_edge.loop.backend import Floats
from hamburger_edge.loop.modes.micro_steps import MicroSteps, log_chance
from hamburger_edge.loop.step import StepToken

# Most tokens that the micro decoder may read to propose the next one. With more of them, a macro step is
# cheaper.
CATCH_UP = 2


class Merging(Protocol):
    def merges(self, floor: float, slot: Sequence[StepToken]) -> bool:
        """Whether a token whose probability has this lower bound joins the slot, unchecked."""


class Drafts:
    """The drafts of one answer: their costs, their savings and their guesses."""

    def __init__(self, run: AnswerRun, merging: Merging | None) -> None:
        self.run, self.merging = run, merging
        info = run.info
        # measured costs change no checked answer, but what is merged
        self.costs = (info.machine_costs if merging is None else None) or info.draft_costs
        self.drafter = None  # at confidence 1 a draft holds forced tokens only
        if run.decoding.confidence < 1:
            self.drafter = Drafter(run.prompt, info.draft_index, run.words, run.sampler.copies)
        self.micro_limit = info.max_group_tokens if run.sampler.micro_usable else 1

    def grow(self, row: BaseRow | None, room: int) -> list[list[StepToken]]:
        """Return a draft of at most `room` tokens, by slot.

        It begins with the base's token of the row. Without a row it may be empty.
        """
        draft = _Draft(self, row, min(room, self.run.tokens_left))
        while not (draft.tokens and self.run.ends_with(draft.tokens[-1])) and draft.add_token():
            pass
        return draft.slots

    def settle(self, kept: int) -> None:
        """Record that the base kept the first `kept` tokens of the draft."""
        if self.drafter:
            self.drafter.settle(kept)


class _Draft:
    """A draft in progress."""

    def __init__(self, drafts: Drafts, row: BaseRow | None, room: int) -> None:
        self.drafts, self.sampler, self.room = drafts, drafts.run.sampler, room
        self.costs = drafts.costs.behind(drafts.run.text.ledger.slots)
        self.worth = worth_of_token(drafts.run.info.draft_index, self.costs)
        self.stands = 1.0
        self.tokens: list[int] = []
        self.slots: list[list[StepToken]] = []
        self.micro = None  # micro steps follow a row
        if drafts.drafter:
            drafts.drafter.begin()
        if row is not None:
            self.micro = MicroSteps(drafts.run, row)
            self._add_chosen(row)

    def add_token(self) -> bool:
        """Add a token, or return False if the draft ends."""
        if len(self.tokens) >= self.room:
            return False
        if self.sampler.forced is not None:
            return self._add_forced()
        if self.drafts.drafter is None or len(self.tokens) > MOST:
            return False
        return self._add_likelier(self.drafts.drafter)

    def _add_chosen(self, row: BaseRow) -> None:
        """Add the token that the base chooses from this row."""
        forced = self.sampler.forced is not None
        choice = self.sampler.choose(row.logits)
        p_stop = 0.0 if forced else row.p_stop
        token = StepToken(choice.token, choice.probability, p_stop, choice.top, forced=forced)
        self._append(token, merged=False)

    def _add_forced(self) -> bool:
        if self.sampler.forbids_forced:
            return False  # the base may reject the draft before this forbidden token
        choice = self.sampler.choose_forced()
        self._append(StepToken(choice.token, choice.probability, forced=True), merged=False)
        return True

    def _add_likelier(self, drafter: Drafter) -> bool:
        """Add the likelier of a guess and a micro token, if it pays."""
        sampler = self.sampler
        guess = drafter.guess(sampler.answer)
        if self.micro is not None and self._micro_pays(self.micro, 1 - guess.chance if guess else 1.0):
            logits, chance = self.micro.scores(self.tokens)
            if guess is None or chance > guess.chance:
                return self._add_micro(self.micro, logits, chance)
        if guess is None:
            return False
        floor = 0.0 if sampler.adjusts else guess.floor  # guesses know no penalties, biases or bans
        logprob = log_chance(guess.chance)
        if not self._pays(guess.chance, floor) or not sampler.propose(guess.token, logprob):
            return False
        token = StepToken(guess.token, guess.chance, logprob=logprob)
        self._join(token, floor, guess.chance, guess)
        return True

    def _add_micro(self, micro: MicroSteps, logits: Floats, chance: float) -> bool:
        logprob = log_chance(chance)
        choice = self.sampler.choose_micro(logits, logprob) if self._pays(chance, chance) else None
        if choice is None:
            return False
        floor = chance if choice.token == self.sampler.judged(logits) else 0.0
        token = StepToken(choice.token, choice.probability, micro.p_stop, choice.top, logprob)
        self._join(token, floor, chance)
        return True

    def _micro_pays(self, micro: MicroSteps, wanted: float) -> bool:
        """Whether there can be a micro token that saves its micro steps and its row."""
        behind = micro.behind(len(self.tokens))
        full = len(self.tokens) >= min(self.drafts.micro_limit, self.room)
        if full or behind > CATCH_UP or not self.sampler.micro_open:
            return False
        gain = self.worth * self.stands * wanted * (1 - micro.p_stop)
        return gain > behind * self.costs.micro + self._row_cost

    def _merges(self, floor: float) -> bool:
        merging = self.drafts.merging
        return merging is not None and bool(self.slots) and merging.merges(floor, self.slots[-1])

    def _pays(self, chance: float, floor: float) -> bool:
        """Whether another token saves its row; a merged one has none."""
        return self._merges(floor) or self.worth * self.stands * chance >= self._row_cost

    @property
    def _row_cost(self) -> float:
        """The cost of one more slot in the call."""
        if self.drafts.run.info.pairs_rows:
            return 0.0 if len(self.slots) % 2 else 2 * self.costs.row
        return self.costs.row

    def _join(self, token: StepToken, floor: float, chance: float, guess: Guess | None = None) -> None:
        merged = self._merges(floor)
        if not merged:
            self.stands *= chance
        self._append(token, merged=merged, guess=guess)

    def _append(self, token: StepToken, *, merged: bool, guess: Guess | None = None) -> None:
        if merged:
            self.slots[-1].append(token)
        else:
            self.slots.append([token])
        self.tokens.append(token.token)
        if self.drafts.drafter:
            self.drafts.drafter.add(guess)
