"""What one macro step says: a token of the base, then forced, micro or copied ones, until a rule ends it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import Literal, NamedTuple

from hamburger_edge.loop.backend import Backend, Floats, ModelInfo, Readout
from hamburger_edge.loop.copies import Copies
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats

FinishReason = Literal["eos", "length", "stop", "context", "cancelled"]

# By stop rule "after" a group's first micro step is only a try, at about a fifth of a macro step, and it must
# then convince at the confidence asked for: where the base's own row gives it less than this share of that,
# it is hardly ever worth its price (docs/research/decisions.md has the curve).
TRY = 2 / 3

# In verify mode a micro token that was computed is proposed even when it does not convince: one more row of
# the base's call costs a quarter of a macro step, and a token that stays saves a whole one.
JOIN = 0.4

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


class Copied(NamedTuple):
    tokens: list[int]
    forced: int


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
        self.join_confidence = min(self.confidence, JOIN) if self.verify else self.confidence
        self.judged = decoding.mode == "merge" and decoding.force_group is None
        self.size = decoding.force_group or (1 if decoding.confidence >= 1 else info.max_group_tokens)
        if not sampler.micro_usable:
            self.size = 1
        groups = decoding.confidence < 1 and decoding.force_group is None
        self.copies = Copies(prompt) if self.verify and groups else None
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

    def copy(self, trying: bool, most: int) -> Copied:
        """Say, for the base to check, what the answer seems to copy out of the prompt. Where a micro step is
        worth trying, one token that matches is less sure than the micro decoder, and several are surer."""
        tokens, forced = [], 0
        draft = self.copies.draft(self.sampler.answer, 2 if trying else 1) if self.copies else ()
        for token in draft[: max(0, most)]:
            needed = self.sampler.forced is not None
            if not self.sampler.propose(token):
                break
            tokens.append(token)
            forced += needed
            if token in self.eos_ids or self.sampler.ended:
                break
        return Copied(tokens, forced)

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
    """One group, or a draft of at most `room` tokens to be verified, which may hold more of the forced ones.

    Without a readout there are no features for micro steps, and the group begins with a forced token.
    """
    sampler = rules.sampler
    room = min(room, rules.max_tokens - stats.tokens)
    limit = min(rules.size, room)
    forced_limit = 1  # tokens that a group may hold for another forced one to join
    if rules.verify and rules.rides and readout is not None:
        forced_limit = room
    elif rules.merges:
        forced_limit = limit
    forced = int(sampler.forced is not None)
    if readout is None:
        (token, probability), p_stop = sampler.choose_forced(), 0.0
    else:
        token, probability = sampler.choose(readout.logits[row])
        p_stop = float(readout.p_stop[row])
    tokens, probabilities, stops = [token], [probability], [0.0 if forced else p_stop]
    groups: list[Group] = [(token,)]
    trying = readout is not None and 1 - p_stop >= rules.try_confidence
    fed = 0  # of these tokens, to the micro decoder
    while token not in rules.eos_ids and not sampler.ended:
        if sampler.forced is not None:
            if len(tokens) >= forced_limit or (rules.verify and sampler.forbids_forced):
                break  # the base may choose otherwise before it comes to a forbidden token
            token, probability = sampler.choose_forced()
            p_stop, joins = 0.0, rules.merges
            forced += 1
        elif readout is not None and not fed and (copied := rules.copy(trying, room - len(tokens))).tokens:
            tokens += copied.tokens
            forced += copied.forced
            probabilities += [math.nan] * len(copied.tokens)  # the base will tell
            stops += [0.0] * len(copied.tokens)
            groups += [(copy,) for copy in copied.tokens]
            break
        else:
            behind = len(tokens) - fed
            if not trying or len(tokens) >= limit or behind > CATCH_UP or not sampler.micro_open:
                break
            begin = perf_counter()
            assert readout is not None
            if not fed:
                backend.micro_begin(readout.features[row])
            for read in tokens[fed:]:
                logits, stop = backend.micro(read)
            fed = len(tokens)
            stats.micro_s += perf_counter() - begin
            stats.micro_steps += behind
            sure, p_stop = 1 - p_stop, float(stop)  # by rule "before" the last step spoke of this token
            if rules.judge_after:
                sure = 1 - p_stop
            trying = 1 - p_stop >= rules.confidence
            if rules.judge_after and 1 - p_stop < rules.join_confidence:
                break  # this token is not sure enough: the base will choose it instead
            choice = sampler.choose_judged(logits) if rules.judged else sampler.choose_micro(logits)
            if choice is None:
                break  # nobody vouches for what the sampler prefers: the base will choose
            token, probability = choice
            unchecked = rules.hybrid and sure >= rules.unchecked and token == sampler.judged(logits)
            joins = not rules.verify or unchecked
        if joins and len(groups[-1]) < backend.info.max_group_tokens:
            groups[-1] += (token,)
        else:
            groups.append((token,))
        tokens.append(token)
        probabilities.append(probability)
        stops.append(p_stop)
    shown = tuple(probabilities) if rules.probabilities else ()
    return Step(tuple(tokens), shown, tuple(stops), None, forced, tuple(groups))


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
