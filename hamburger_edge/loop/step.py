"""What one macro step generates: the base's token, then forced, guessed or micro tokens until a rule ends it.

A draft grows while that pays. A token joins if the chance that the base keeps the whole draft, times the call
that it saves, is above the cost of its row and of its micro step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import Literal, NamedTuple

from hamburger_edge.loop.backend import Backend, Floats, ModelInfo, Readout
from hamburger_edge.loop.drafting import MOST, Drafter
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats

FinishReason = Literal["eos", "length", "stop", "context", "cancelled"]

# By stop rule "after" a group's first micro step is only a try, at about a fifth of a macro step, and it must
# then convince at the confidence asked for: where the base's own row gives it less than this share of that,
# it is hardly ever worth its price (docs/research/decisions.md has the curve).
TRY = 2 / 3

# A guess of at least this chance needs no second opinion from the micro decoder.
SURE = 0.9

# Micro steps that only read what was forced, so that one more can choose: beyond so many, the base's own step
# is worth more.
CATCH_UP = 2


class Step(NamedTuple):
    """What one macro step said."""

    tokens: Group
    probabilities: tuple[float, ...]  # of each token; empty unless asked for
    stop_probabilities: tuple[float, ...]  # chance that the group should end with each token
    finish_reason: FinishReason | None  # set on the last step
    forced: int = 0  # how many of the tokens the grammar left no choice about
    groups: tuple[Group, ...] = ()  # the tokens as slots hold them


class Rules:
    """When a group and an answer end; worked out once a run."""

    def __init__(self, info: ModelInfo, decoding: Decoding, sampler: Sampler, prompt: Sequence[int]) -> None:
        self.sampler = sampler
        self.verify = decoding.mode in ("verify", "hybrid")  # the base checks what is drafted ...
        self.hybrid = decoding.mode == "hybrid"  # ... but for what is sure, if it reads that surely
        self.max_tokens = decoding.max_tokens
        self.probabilities = decoding.probabilities
        self.eos_ids = frozenset(() if decoding.ignore_eos else info.eos_ids)
        self.confidence = -math.inf if decoding.force_group else decoding.confidence
        # so sure that a whole group of such tokens, none of them checked, is as sure as the confidence
        self.unchecked = max(0.0, self.confidence) ** (1 / info.max_group_tokens)
        self.judge_after = info.stop_rule == "after"
        self.try_confidence = TRY * self.confidence if self.judge_after else self.confidence
        self.judged = decoding.mode == "merge" and decoding.force_group is None
        self.size = decoding.force_group or (1 if decoding.confidence >= 1 else info.max_group_tokens)
        if not sampler.micro_usable:
            self.size = 1
        groups = decoding.confidence < 1 and decoding.force_group is None
        self.drafter = Drafter(prompt, info.draft_index) if self.verify and groups else None
        self.costs = info.draft_costs
        begins = groups and sampler.grammar is None and not sampler.adjusts and not sampler.answer
        self.answer_prefix = info.answer_prefix[: self.max_tokens] if begins else ()
        self.prefix_group_tokens = (
            info.max_group_tokens if self.hybrid or not self.verify else 1
        )  # tokens of its slots
        self.merges = decoding.forced == "merge" and not decoding.exact
        self.rides = decoding.forced != "single"  # forced tokens need no call of their own

    def doubts(self, logits: Floats) -> bool:
        """Whether the base, having read merged groups, is not sure of what it is to choose."""
        return self.sampler.forced is None and self.sampler.surety(logits) < self.confidence

    def ahead(self) -> bool:
        """Whether the next token can be said before the last ones are read."""
        return self.rides and self.sampler.forced is not None

    def finish(self, tokens: Group, stats: Stats) -> FinishReason | None:
        """Whether the answer ends with this newest group (not yet counted in the statistics)."""
        if tokens[-1] in self.eos_ids:
            return "eos"
        if self.sampler.ended:
            return "stop"
        return "length" if stats.tokens + len(tokens) >= self.max_tokens else None


def open_answer(rules: Rules) -> Step:
    """What all answers begin with, as a draft that needs no readout: the base checks it as it reads the
    prompt."""
    tokens, size = rules.answer_prefix, rules.prefix_group_tokens
    for token in tokens:
        rules.sampler.propose(token)
    groups = tuple(tokens[start : start + size] for start in range(0, len(tokens), size))
    shown = (1.0,) * len(tokens) if rules.probabilities else ()
    return Step(tokens, shown, (0.0,) * len(tokens), None, 0, groups)


def say(backend: Backend, readout: Readout | None, row: int, rules: Rules, room: int, stats: Stats) -> Step:
    """Make one group, or a draft of at most `room` tokens to be verified, which may hold more forced ones.

    Without a readout there are no features for micro steps, and the group begins with a forced token.
    """
    growing = Growing(backend, readout, row, rules, min(room, rules.max_tokens - stats.tokens), stats)
    while not growing.ended and growing.grow():
        pass
    return growing.step()


class Growing:
    """A group or draft that is being made."""

    def __init__(
        self, backend: Backend, readout: Readout | None, row: int, rules: Rules, room: int, stats: Stats
    ) -> None:
        self.backend, self.readout, self.row = backend, readout, row
        self.rules, self.sampler, self.stats = rules, rules.sampler, stats
        self.room, self.limit = room, min(rules.size, room)
        self.forced = int(self.sampler.forced is not None)
        self.p_stop = 0.0 if readout is None else float(readout.p_stop[row])
        if readout is None:
            token, probability = self.sampler.choose_forced()
        else:
            token, probability = self.sampler.choose(readout.logits[row])
        self.tokens, self.probabilities = [token], [probability]
        self.stops = [0.0 if self.forced else self.p_stop]
        self.groups: list[Group] = [(token,)]
        self.trying = readout is not None and 1 - self.p_stop >= rules.try_confidence
        self.fed = 0  # of these tokens, to the micro decoder
        self.stands = 1.0  # chance that the base keeps all of the draft
        if rules.drafter:
            rules.drafter.begin()

    @property
    def ended(self) -> bool:
        return self.tokens[-1] in self.rules.eos_ids or self.sampler.ended

    def grow(self) -> bool:
        """Add a token, or return False where the group ends."""
        if self.sampler.forced is not None:
            return self._force()
        if self.readout is None:
            return False
        return self._micro_group() if self.rules.drafter is None else self._draft()

    def step(self) -> Step:
        shown = tuple(self.probabilities) if self.rules.probabilities else ()
        return Step(tuple(self.tokens), shown, tuple(self.stops), None, self.forced, tuple(self.groups))

    def _force(self) -> bool:
        rules, limit = self.rules, 1  # tokens that a group may hold for another forced one to join
        if rules.verify and rules.rides and self.readout is not None:
            limit = self.room
        elif rules.merges:
            limit = self.limit
        if len(self.tokens) >= limit or (rules.verify and self.sampler.forbids_forced):
            return False  # the base may choose otherwise before it comes to a forbidden token
        token, probability = self.sampler.choose_forced()
        self.forced += 1
        self._add(token, probability, 0.0, joins=rules.merges)
        return True

    def _micro_group(self) -> bool:
        """One more micro token while the stop head is confident: mode merge, or groups of a forced size."""
        rules = self.rules
        if not self.trying or self._micro_cost is None:
            return False
        logits, sure = self._micro()
        self.trying = 1 - self.p_stop >= rules.confidence
        if rules.judge_after and not self.trying:
            return False  # the base chooses this token instead
        choice = self.sampler.choose_judged(logits) if rules.judged else self.sampler.choose_micro(logits)
        if choice is None:
            return False  # the stop head judged another token than the sampler prefers
        unchecked = rules.hybrid and sure >= rules.unchecked and choice.token == self.sampler.judged(logits)
        self._add(*choice, self.p_stop, joins=not rules.verify or unchecked)
        return True

    def _draft(self) -> bool:
        """The likelier of a guess and a micro token, if it is worth its row."""
        rules, costs = self.rules, self.rules.costs
        assert rules.drafter is not None
        if len(self.tokens) >= self.room or len(self.tokens) > MOST:
            return False
        guess = rules.drafter.guess(self.sampler.answer)
        micro = self._micro_cost
        unsure = guess is None or guess.chance < SURE
        if unsure and micro is not None and self.stands * (1 - self.p_stop) > micro + costs.row:
            logits, sure = self._micro()
            if guess is None or sure > guess.chance:
                return self._draft_micro(logits, sure)
        if guess is None or self.stands * guess.chance < costs.row or not self.sampler.propose(guess.token):
            return False
        self.stands *= guess.chance
        joins = rules.hybrid and guess.floor >= rules.unchecked
        self._add(guess.token, guess.chance, 0.0, joins=joins, place=guess.place)
        return True

    def _draft_micro(self, logits: Floats, sure: float) -> bool:
        rules = self.rules
        choice = self.sampler.choose_micro(logits) if self.stands * sure >= rules.costs.row else None
        if choice is None:
            return False
        self.stands *= sure
        joins = rules.hybrid and sure >= rules.unchecked and choice.token == self.sampler.judged(logits)
        self._add(*choice, self.p_stop, joins=joins)
        return True

    @property
    def _micro_cost(self) -> float | None:
        """Of the next micro token; None: there can be none."""
        behind = len(self.tokens) - self.fed
        if len(self.tokens) >= self.limit or behind > CATCH_UP or not self.sampler.micro_open:
            return None
        return behind * self.rules.costs.micro

    def _micro(self) -> tuple[Floats, float]:
        """Scores of the next micro token, and the chance of the highest."""
        assert self.readout is not None
        begin = perf_counter()
        if not self.fed:
            self.backend.micro_begin(self.readout.features[self.row])
        sure = 1 - self.p_stop  # by rule "before" the last step's p_stop judges this token
        for token in self.tokens[self.fed :]:
            logits, p_stop = self.backend.micro(token)
        self.stats.micro_s += perf_counter() - begin
        self.stats.micro_steps += len(self.tokens) - self.fed
        self.fed, self.p_stop = len(self.tokens), float(p_stop)
        return logits, 1 - self.p_stop if self.rules.judge_after else sure

    def _add(self, token: int, probability: float, p_stop: float, *, joins: bool, place: int = -1) -> None:
        if joins and len(self.groups[-1]) < self.backend.info.max_group_tokens:
            self.groups[-1] += (token,)
        else:
            self.groups.append((token,))
        self.tokens.append(token)
        self.probabilities.append(probability)
        self.stops.append(p_stop)
        if self.rules.drafter:
            self.rules.drafter.add(place)


def decisions(groups: Sequence[Group], sampler: Sampler) -> tuple[list[int], int]:
    """Which of these groups begin where the base decides, and how many of their tokens are forced."""
    if sampler.grammar is None:
        return list(range(len(groups))), 0
    decided, forced = [], 0
    for index, group in enumerate(groups):
        if sampler.forced is None:
            decided.append(index)
        for token in group:
            forced += sampler.forced is not None
            sampler.grammar.consume(token)
    sampler.grammar.rewind(sum(map(len, groups)))
    return decided, forced
