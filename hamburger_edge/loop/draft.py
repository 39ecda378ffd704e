"""Drafts of mode verify: the base's token, then forced, guessed or micro tokens while another one pays.

`stands` is the probability that the base keeps the whole draft, `worth` what a kept token saves on average.
Costs are in units of a base call. A micro step may save a call:

    micro step   runs if   stands * (1 - p_stop) > cost of its micro steps + cost of a row
    token        joins if  worth * stands * p >= cost of a row, or if it is merged, without a row
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hamburger_edge.drafts.drafting import MOST, Drafter, worth_of_token
from hamburger_edge.loop.answer_run import AnswerRun, Row
from hamburger_edge.loop.backend import Floats
from hamburger_edge.loop.micro_steps import MicroSteps, log_chance
from hamburger_edge.loop.step import StepToken

# A guess with at least this probability is taken without a micro step.
SURE = 0.9

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
        self.worth = worth_of_token(info.draft_index, self.costs)
        self.drafter = None  # at confidence 1 a draft holds forced tokens only
        if run.decoding.confidence < 1:
            self.drafter = Drafter(run.prompt, info.draft_index, run.words, run.sampler.copies)
        self.micro_limit = info.max_group_tokens if run.sampler.micro_usable else 1

    def grow(self, row: Row, room: int) -> list[list[StepToken]]:
        """Return a draft of at most `room` tokens, by slot."""
        draft = _Draft(self, row, min(room, self.run.tokens_left))
        while not self.run.ends_with(draft.tokens[-1]) and draft.add_token():
            pass
        return draft.slots

    def settle(self, kept: int) -> None:
        """Record that the base kept the first `kept` tokens of the draft."""
        if self.drafter:
            self.drafter.settle(kept - 1)


class _Draft:
    """A draft in progress."""

    def __init__(self, drafts: Drafts, row: Row, room: int) -> None:
        self.drafts, self.sampler, self.room = drafts, drafts.run.sampler, room
        self.micro = MicroSteps(drafts.run, row)
        self.stands = 1.0
        forced = self.sampler.forced is not None
        choice = self.sampler.choose(row.logits)
        p_stop = 0.0 if forced else row.p_stop
        self.tokens = [choice.token]
        self.slots = [[StepToken(choice.token, choice.probability, p_stop, choice.top, forced=forced)]]
        if drafts.drafter:
            drafts.drafter.begin()

    def add_token(self) -> bool:
        """Add a token, or return False if the draft ends."""
        if len(self.tokens) >= self.room:
            return False
        if self.sampler.forced is not None:
            return self._add_forced()
        if self.drafts.drafter is None or len(self.tokens) > MOST:
            return False
        return self._add_likelier(self.drafts.drafter)

    def _add_forced(self) -> bool:
        if self.sampler.forbids_forced:
            return False  # the base may reject the draft before this forbidden token
        choice = self.sampler.choose_forced()
        self._append(StepToken(choice.token, choice.probability, forced=True), merged=False)
        return True

    def _add_likelier(self, drafter: Drafter) -> bool:
        """Add the likelier of a guess and a micro token, if it pays."""
        sampler, cost = self.sampler, self._micro_cost
        guess = drafter.guess(sampler.answer)
        unsure = guess is None or guess.chance < SURE
        saved = self.stands * (1 - self.micro.p_stop)
        if unsure and cost is not None and saved > cost + self.drafts.costs.row:
            logits, chance = self.micro.scores(self.tokens)
            if guess is None or chance > guess.chance:
                return self._add_micro(logits, chance)
        if guess is None:
            return False
        floor = 0.0 if sampler.adjusts else guess.floor  # guesses know no penalties, biases or bans
        logprob = log_chance(guess.chance)
        if not self._pays(guess.chance, floor) or not sampler.propose(guess.token, logprob):
            return False
        self._join(StepToken(guess.token, guess.chance, logprob=logprob), floor, guess.chance, guess.place)
        return True

    def _add_micro(self, logits: Floats, chance: float) -> bool:
        logprob = log_chance(chance)
        choice = self.sampler.choose_micro(logits, logprob) if self._pays(chance, chance) else None
        if choice is None:
            return False
        floor = chance if choice.token == self.sampler.judged(logits) else 0.0
        token = StepToken(choice.token, choice.probability, self.micro.p_stop, choice.top, logprob)
        self._join(token, floor, chance)
        return True

    @property
    def _micro_cost(self) -> float | None:
        """Cost of the next micro token; None if there can be none."""
        behind = self.micro.behind(len(self.tokens))
        full = len(self.tokens) >= min(self.drafts.micro_limit, self.room)
        if full or behind > CATCH_UP or not self.sampler.micro_open:
            return None
        return behind * self.drafts.costs.micro

    def _merges(self, floor: float) -> bool:
        merging = self.drafts.merging
        return merging is not None and merging.merges(floor, self.slots[-1])

    def _pays(self, chance: float, floor: float) -> bool:
        """Whether another token saves its row; a merged one has none."""
        worth = self.drafts.worth * self.stands * chance
        return self._merges(floor) or worth >= self.drafts.costs.row

    def _join(self, token: StepToken, floor: float, chance: float, place: int = -1) -> None:
        merged = self._merges(floor)
        if not merged:
            self.stands *= chance
        self._append(token, merged=merged, place=place)

    def _append(self, token: StepToken, *, merged: bool, place: int = -1) -> None:
        if merged:
            self.slots[-1].append(token)
        else:
            self.slots.append([token])
        self.tokens.append(token.token)
        if self.drafts.drafter:
            self.drafts.drafter.add(place)
