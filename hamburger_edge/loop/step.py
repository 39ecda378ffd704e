"""Generate one macro step: the base's token, then forced, guessed or micro tokens until a rule ends it.

A draft grows while another token pays. `stands` is the probability that the base keeps the whole draft,
`worth` what a kept token saves on average. Costs are in units of a base call. A micro step may save a call:

    micro step   runs if   stands * (1 - p_stop) > cost of its micro steps + cost of a row
    token        joins if  worth * stands * p >= cost of a row, or if it is merged, without a row
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from time import perf_counter
from typing import Literal, NamedTuple

from hamburger_edge.loop.backend import Backend, Floats, ModelInfo, Readout
from hamburger_edge.loop.copied_words import Words
from hamburger_edge.loop.drafting import MOST, Drafter, worth_of_token
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.sampling import Choice, Sampler
from hamburger_edge.loop.scores import TopToken
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats

FinishReason = Literal["eos", "length", "stop", "context", "cancelled"]

# By stop rule "after" a group's first micro step runs if the base's row gives 1 - p_stop >= TRY * confidence.
# It costs about a fifth of a macro step, and its own 1 - p_stop must then reach the confidence. Below TRY it
# hardly ever pays (docs/research/decisions.md).
TRY = 2 / 3

# A guess with at least this probability is taken without a micro step.
SURE = 0.9

# Most tokens that the micro decoder may read to propose the next one. With more of them, a macro step is
# cheaper.
CATCH_UP = 2

MAX_TOKENS = 256  # default length of an answer that does not edit its prompt


class Step(NamedTuple):
    """The tokens of one macro step."""

    tokens: Group
    probabilities: tuple[float, ...]  # of each token; empty unless requested
    stop_probabilities: tuple[float, ...]  # probability that the group should end with each token
    finish_reason: FinishReason | None  # set on the last step
    forced: int = 0  # number of tokens that the grammar forced
    groups: tuple[Group, ...] = ()  # the tokens by slot
    # The base's likeliest tokens at each token's place, if requested. Empty where the base neither chose nor
    # checked the token: merged unchecked, or forced by a structure.
    top: tuple[tuple[TopToken, ...], ...] = ()


class Rules:
    """The rules that end groups and answers, computed once per run."""

    def __init__(
        self,
        info: ModelInfo,
        decoding: Decoding,
        sampler: Sampler,
        prompt: Sequence[int],  # without the answer so far
        words: Words | None = None,
    ) -> None:
        self.sampler = sampler
        self.verify = decoding.mode in ("verify", "hybrid")  # the base checks drafts
        self.hybrid = decoding.mode == "hybrid"  # tokens with p >= `unchecked` are merged without a check
        usual = MAX_TOKENS if sampler.edits is None else sampler.edits.max_tokens
        self.max_tokens = usual if decoding.max_tokens is None else decoding.max_tokens
        self.probabilities = decoding.top_probabilities is not None
        self.eos_ids = frozenset(() if decoding.ignore_eos else info.eos_ids)
        self.confidence = -math.inf if decoding.force_group else decoding.confidence
        # confidence ** (1 / max_group_tokens): a full group of such tokens has p >= confidence
        self.unchecked = max(0.0, self.confidence) ** (1 / info.max_group_tokens)
        self.judge_after = info.stop_rule == "after"
        self.try_confidence = TRY * self.confidence if self.judge_after else self.confidence
        self.judged = decoding.mode == "merge" and decoding.force_group is None
        self.size = decoding.force_group or (1 if decoding.confidence >= 1 else info.max_group_tokens)
        if not sampler.micro_usable:
            self.size = 1
        groups = decoding.confidence < 1 and decoding.force_group is None
        drafts = self.verify and groups
        self.drafter = Drafter(prompt, info.draft_index, words, sampler.copies) if drafts else None
        self.costs = (not self.hybrid and info.machine_costs) or info.draft_costs
        self.worth = worth_of_token(info.draft_index, self.costs)
        begins = groups and sampler.grammar is None and not sampler.adjusts and not sampler.answer
        self.answer_prefix = info.answer_prefix[: self.max_tokens] if begins else ()
        self.prefix_group_tokens = (
            info.max_group_tokens if self.hybrid or not self.verify else 1
        )  # tokens per slot of the prefix
        self.merges = decoding.forced == "merge" and not decoding.exact
        self.rides = decoding.forced != "single"  # forced tokens join the next call of the base

    def doubts(self, logits: Floats) -> bool:
        """Whether the base's top probability after merged groups is below the confidence."""
        return self.sampler.forced is None and self.sampler.surety(logits) < self.confidence

    def ahead(self) -> bool:
        """Whether the next token is forced, so it needs no readout."""
        return self.rides and self.sampler.forced is not None

    def finish(self, tokens: Group, stats: Stats) -> FinishReason | None:
        """Return the reason if the answer ends with this newest group, which `stats` does not count yet."""
        if tokens[-1] in self.eos_ids:
            return "eos"
        if self.sampler.ended:
            return "stop"
        return "length" if stats.tokens + len(tokens) >= self.max_tokens else None


def open_answer(rules: Rules) -> Step:
    """Return the answer prefix as a draft, up to its first token that the sampler refuses.

    The base checks it in the call that reads the prompt.
    """
    tokens = tuple(itertools.takewhile(rules.sampler.propose, rules.answer_prefix))
    size = rules.prefix_group_tokens
    groups = tuple(tokens[start : start + size] for start in range(0, len(tokens), size))
    shown = (1.0,) * len(tokens) if rules.probabilities else ()
    return Step(tokens, shown, (0.0,) * len(tokens), None, 0, groups, ((),) * len(shown))


def say(backend: Backend, readout: Readout | None, row: int, rules: Rules, room: int, stats: Stats) -> Step:
    """Make one group, or a draft of at most `room` tokens for verification.

    Without a readout the group begins with a forced token and has no micro steps.
    """
    growing = Growing(backend, readout, row, rules, min(room, rules.max_tokens - stats.tokens), stats)
    while not growing.ended and growing.grow():
        pass
    return growing.step()


class Growing:
    """A group or draft in progress."""

    def __init__(
        self, backend: Backend, readout: Readout | None, row: int, rules: Rules, room: int, stats: Stats
    ) -> None:
        self.backend, self.readout, self.row = backend, readout, row
        self.rules, self.sampler, self.stats = rules, rules.sampler, stats
        self.room, self.limit = room, min(rules.size, room)
        self.forced = int(self.sampler.forced is not None)
        self.p_stop = 0.0 if readout is None else float(readout.p_stop[row])
        if readout is None:
            choice = self.sampler.choose_forced()
        else:
            choice = self.sampler.choose(readout.logits[row])
        token = choice.token
        self.tokens, self.probabilities, self.top = [token], [choice.probability], [choice.top]
        self.stops = [0.0 if self.forced else self.p_stop]
        self.groups: list[Group] = [(token,)]
        self.trying = readout is not None and 1 - self.p_stop >= rules.try_confidence
        self.fed = 0  # number of tokens that the micro decoder has read
        self.stands = 1.0  # probability that the base keeps the whole draft
        if rules.drafter:
            rules.drafter.begin()

    @property
    def ended(self) -> bool:
        return self.tokens[-1] in self.rules.eos_ids or self.sampler.ended

    def grow(self) -> bool:
        """Add a token, or return False if the group ends."""
        if self.sampler.forced is not None:
            return self._force()
        if self.readout is None:
            return False
        return self._micro_group() if self.rules.drafter is None else self._draft()

    def step(self) -> Step:
        shown = tuple(self.probabilities) if self.rules.probabilities else ()
        top = tuple(self.top) if shown else ()
        return Step(tuple(self.tokens), shown, tuple(self.stops), None, self.forced, tuple(self.groups), top)

    def _force(self) -> bool:
        rules, limit = self.rules, 1  # size up to which another forced token may join
        if rules.verify and rules.rides and self.readout is not None:
            limit = self.room
        elif rules.merges:
            limit = self.limit
        if len(self.tokens) >= limit or (rules.verify and self.sampler.forbids_forced):
            return False  # the base may reject the draft before this forbidden token
        choice = self.sampler.choose_forced()
        self.forced += 1
        self._add(choice, 0.0, joins=rules.merges)
        return True

    def _micro_group(self) -> bool:
        """Add a micro token while `1 - p_stop >= confidence`: mode merge, or groups of a forced size."""
        rules = self.rules
        if not self.trying or self._micro_cost is None:
            return False
        logits, sure = self._micro()
        self.trying = 1 - self.p_stop >= rules.confidence
        if rules.judge_after and not self.trying:
            return False  # the base chooses the next token
        choose = self.sampler.choose_judged if rules.judged else self.sampler.choose_micro
        choice = choose(logits, log_chance(sure))
        if choice is None:
            return False  # the sampler prefers another token than the stop head's, or edits refuse it
        unchecked = rules.hybrid and sure >= rules.unchecked and choice.token == self.sampler.judged(logits)
        self._add(choice, self.p_stop, joins=not rules.verify or unchecked)
        return True

    def _draft(self) -> bool:
        """Add the likelier of a guess and a micro token, if it pays."""
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
        if guess is None:
            return False
        floor = 0.0 if self.sampler.adjusts else guess.floor  # guesses know no penalties, biases or bans
        if not self._pays(guess.chance, floor):
            return False
        if not self.sampler.propose(guess.token, log_chance(guess.chance)):
            return False
        self._append(Choice(guess.token, guess.chance), 0.0, floor, guess.chance, guess.place)
        return True

    def _draft_micro(self, logits: Floats, sure: float) -> bool:
        pays = self._pays(sure, sure)
        choice = self.sampler.choose_micro(logits, log_chance(sure)) if pays else None
        if choice is None:
            return False
        floor = sure if choice.token == self.sampler.judged(logits) else 0.0
        self._append(choice, self.p_stop, floor, sure)
        return True

    def _joins(self, floor: float) -> bool:
        """Whether a token with this lower bound is merged into the newest slot, unchecked."""
        rules = self.rules
        certain = rules.hybrid and floor >= rules.unchecked
        return certain and len(self.groups[-1]) < self.backend.info.max_group_tokens

    def _pays(self, chance: float, floor: float) -> bool:
        """Whether another token saves its row; a merged one has none."""
        rules = self.rules
        return self._joins(floor) or rules.worth * self.stands * chance >= rules.costs.row

    def _append(self, choice: Choice, p_stop: float, floor: float, chance: float, place: int = -1) -> None:
        joins = self._joins(floor)
        if not joins:
            self.stands *= chance
        self._add(choice, p_stop, joins=joins, place=place)

    @property
    def _micro_cost(self) -> float | None:
        """Cost of the next micro token; None if there can be none."""
        behind = len(self.tokens) - self.fed
        if len(self.tokens) >= self.limit or behind > CATCH_UP or not self.sampler.micro_open:
            return None
        return behind * self.rules.costs.micro

    def _micro(self) -> tuple[Floats, float]:
        """Return the scores of the next micro token, and the probability of the highest."""
        assert self.readout is not None
        begin = perf_counter()
        if not self.fed:
            self.backend.micro_begin(self.readout.features[self.row])
        sure = 1 - self.p_stop  # by stop rule "before" the last p_stop is about this token
        for token in self.tokens[self.fed :]:
            logits, p_stop = self.backend.micro(token)
        self.stats.micro_s += perf_counter() - begin
        self.stats.micro_steps += len(self.tokens) - self.fed
        self.fed, self.p_stop = len(self.tokens), float(p_stop)
        return logits, 1 - self.p_stop if self.rules.judge_after else sure

    def _add(self, choice: Choice, p_stop: float, *, joins: bool, place: int = -1) -> None:
        token = choice.token
        if joins and len(self.groups[-1]) < self.backend.info.max_group_tokens:
            self.groups[-1] += (token,)
        else:
            self.groups.append((token,))
        self.tokens.append(token)
        self.probabilities.append(choice.probability)
        self.top.append(choice.top)
        self.stops.append(p_stop)
        if self.rules.drafter:
            self.rules.drafter.add(place)


def log_chance(chance: float) -> float:
    """Return the log-probability to record for a drafted token that may be merged unchecked."""
    return math.log(max(chance, 1e-9))


def decisions(groups: Sequence[Group], sampler: Sampler) -> tuple[list[int], int]:
    """Return the indices of groups whose first token is not forced, and the number of forced tokens."""
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
