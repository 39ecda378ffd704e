"""The hierarchical loop: macro steps of the base, micro steps inside them, one KV slot for each group.

    prompt --prefill--> readout -> first token -> micro tokens ... = a group ----yield----+
                           ^                                                              |
                           +------------- macro step: the group becomes one slot ---------+

The newest group of an answer is `pending`: said, but not in the cache. Whatever comes next feeds it, merged,
so an answer stays compressed when a conversation goes on.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Literal, NamedTuple

from hamburger_edge.errors import ContextFullError, InputError
from hamburger_edge.loop.backend import Backend, Readout
from hamburger_edge.loop.ledger import Group, Ledger
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats
from hamburger_edge.support.values import whole_in

FinishReason = Literal["eos", "length", "stop", "context", "cancelled"]

# Which parts of the cache may stand for the beginning of a prompt: none; slots holding the same groups; or
# also merged slots holding the same tokens.
Reuse = Literal["none", "groups", "tokens"]


# By stop rule "after" a group's first micro step is only a try, at about a fifth of a macro step, and it must
# then convince at the confidence asked for: where the base's own row gives it less than this share of that,
# it is hardly ever worth its price (docs/research/decisions.md has the curve).
TRY = 2 / 3

# In verify mode a micro token that was computed is proposed even when it does not convince: one more row of
# the base's call costs a quarter of a macro step, and a token that stays saves a whole one.
JOIN = 0.4


class Flag:
    """Set from any thread, and by a signal's handler in the middle of setting it: unlike `threading.Event`,
    which has a lock that the handler could wait for in vain."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class Step(NamedTuple):
    """What one macro step said."""

    tokens: Group
    probabilities: tuple[float, ...]  # of each token; empty unless asked for
    stop_probabilities: tuple[float, ...]  # chance that the group should end with each token
    finish_reason: FinishReason | None  # set on the last step


class Engine:
    """Drives one backend. Holds what the cache means; settings and sampler are passed to each run."""

    def __init__(self, backend: Backend, *, chunk: int = 256) -> None:
        self.backend = backend
        self.info = backend.info
        self.chunk = chunk  # most slots one prefill call appends
        self.ledger = Ledger.of(self.info)
        self.pending: Group = ()

    @property
    def sequence(self) -> list[Group]:
        """Everything said so far: what the cache holds, and the pending group."""
        return [*self.ledger.groups, self.pending] if self.pending else list(self.ledger.groups)

    def run(
        self,
        prompt: Sequence[Sequence[int]],
        decoding: Decoding,
        sampler: Sampler,
        *,
        cancel: Flag | None = None,
        stats: Stats | None = None,
        reuse: Reuse = "tokens",
    ) -> Generator[Step, None, None]:
        """Answer a prompt given as groups (plain prompts: one token each). Bad input raises here, at once.

        Ends after the step whose `finish_reason` is set, or without one when cancelled: before the first
        macro step, between two, or between two chunks of the prompt. "context" means that the last group
        finds no free slot or no position below the model's context length.
        """
        groups = self.check_groups(prompt)
        if not groups:
            raise InputError("the prompt is empty: give at least one token")
        if decoding.force_group is not None and decoding.force_group > self.info.max_steps:
            raise InputError(
                f"force_group must be 1 to {self.info.max_steps} for this model, got {decoding.force_group}"
            )
        self._align()
        matched = self.ledger.match(groups[:-1], merged=reuse == "tokens" and not decoding.exact)
        kept, covered = (0, 0) if reuse == "none" else matched
        self._check_room(kept, groups, covered)
        stats = stats if stats is not None else Stats()
        stats.prompt_tokens = sum(map(len, groups))
        stats.reused_tokens = sum(map(len, groups[:covered]))
        cancel = cancel or Flag()
        return self._run(kept, groups[covered:], _Rules(self, decoding, sampler), stats, cancel)

    def check_groups(self, groups: Iterable[Iterable[int]]) -> list[Group]:
        """Groups as this model can take them, or an error that names the token at fault."""
        last, most = self.info.vocab_size - 1, self.info.max_steps
        checked = [tuple(whole_in("a token", token, 0, last) for token in group) for group in groups]
        for group in checked:
            if not 1 <= len(group) <= most:
                raise InputError(f"a group holds 1 to {most} tokens, got {len(group)}")
        return checked

    def keep(self, groups: Sequence[Group]) -> None:
        """Cut the cache back to what these groups begin with."""
        self._align()
        self._truncate(self.ledger.match(list(groups), merged=False).slots)
        self.pending = ()

    def drop(self, tokens: int) -> None:
        """Unsay the last tokens of the newest group, but not all of it."""
        if self.pending:
            self.pending = self.pending[:-tokens]
        else:  # a verified group: one slot for each token
            self._truncate(self.ledger.slots - tokens)

    def _run(
        self, kept: int, prompt: list[Group], rules: _Rules, stats: Stats, cancel: Flag
    ) -> Generator[Step, None, None]:
        self.pending = ()
        self._truncate(kept)
        readout: Readout | None = None
        for chunk in self._chunks(prompt):
            if cancel.is_set():
                return
            readout, seconds = self._feed(chunk, [len(chunk) - 1])
            stats.prefill_s += seconds
        assert readout is not None
        row = 0
        while not cancel.is_set():
            step, readout = self._say(readout, row, rules, stats)
            row = len(step.tokens) - 1  # of a verified step, where the next group starts
            finish = rules.finish(step.tokens, stats)
            if finish is None and self.pending and not self.ledger.fits(len(self.pending)):
                finish = "context"
            stats.tokens += len(step.tokens)
            stats.macro_steps += 1
            if stats.macro_steps == 1:
                stats.first_tokens = len(step.tokens)
            yield step._replace(finish_reason=finish)
            if finish or cancel.is_set():
                return
            if self.pending:
                readout, row = self._step([self.pending], [0], stats), 0
                self.pending = ()

    def _chunks(self, prompt: list[Group]) -> Iterator[list[Group]]:
        """What is read at once: into the empty cache, where positions have no gaps (see `Backend.macro`),
        nothing beyond the first merged group."""
        start = 0
        while start < len(prompt):
            stop = min(start + self.chunk, len(prompt))
            if not self.ledger.slots:
                stop = next((i for i in range(start + 1, stop) if len(prompt[i]) > 1), stop)
            yield prompt[start:stop]
            start = stop

    def _say(self, readout: Readout, row: int, rules: _Rules, stats: Stats) -> tuple[Step, Readout]:
        """What one macro step says. Where that fails nobody sees it, and so it was never chosen."""
        sampler = rules.sampler
        said = len(sampler.answer)
        try:
            step = self._group(readout, row, rules, stats)
            if rules.verify and self.ledger.room and not rules.finish(step.tokens[:1], stats):
                return self._verify(step, sampler, stats)
            self.pending = step.tokens
            return step, readout
        except BaseException:
            sampler.rewind(len(sampler.answer) - said)
            raise

    def _group(self, readout: Readout, row: int, rules: _Rules, stats: Stats) -> Step:
        """One group: the base's token, then micro tokens until a rule ends it."""
        sampler, backend = rules.sampler, self.backend
        limit = min(rules.size, rules.max_tokens - stats.tokens)
        if rules.verify:
            limit = min(limit, self.ledger.room)
        token, probability = sampler.choose(readout.logits[row])
        p_stop = float(readout.p_stop[row])
        tokens, probabilities, stops = [token], [probability], [p_stop]
        trying = 1 - p_stop >= rules.try_confidence
        while trying and len(tokens) < limit and token not in rules.eos_ids:
            begin = perf_counter()
            if len(tokens) == 1:
                backend.micro_begin(readout.features[row])
            logits, stop = backend.micro(token)
            stats.micro_s += perf_counter() - begin
            stats.micro_steps += 1
            p_stop = float(stop)
            trying = 1 - p_stop >= rules.confidence
            if rules.judge_after and 1 - p_stop < rules.join_confidence:
                break  # this token is not sure enough: the base will choose it instead
            choice = sampler.choose_judged(logits) if rules.judged else sampler.choose_micro(logits)
            if choice is None:
                break  # nobody vouches for what the sampler prefers: the base will choose
            token, probability = choice
            tokens.append(token)
            probabilities.append(probability)
            stops.append(p_stop)
        return Step(tuple(tokens), tuple(probabilities) if rules.probabilities else (), tuple(stops), None)

    def _verify(self, draft: Step, sampler: Sampler, stats: Stats) -> tuple[Step, Readout]:
        """Keep the part of a draft that the base would have said itself, with the same draws.

        draft      a    b    c    d          fed one by one; row i: the base's scores after draft[i]
        base's     -    b    c    x    y     -> a b c stay; the next group starts from row 2, which says x
        """
        tokens, probabilities = draft.tokens, draft.probabilities[:1]
        start, agreed = self.ledger.slots, 1
        try:
            readout = self._step([(token,) for token in tokens], range(len(tokens)), stats)
            sampler.rewind(len(tokens) - 1)
            for row, proposed in enumerate(tokens[1:]):
                token, probability = sampler.choose(readout.logits[row])
                if token != proposed:
                    sampler.rewind(1)
                    break
                probabilities += (probability,) if draft.probabilities else ()
                agreed += 1
        except BaseException:
            self._truncate(start)
            raise
        self._truncate(start + agreed)
        return Step(tokens[:agreed], probabilities, draft.stop_probabilities[:agreed], None), readout

    def _step(self, groups: Sequence[Group], rows: Sequence[int], stats: Stats) -> Readout:
        readout, seconds = self._feed(groups, rows)
        stats.macro_s += seconds
        stats.base_calls += 1
        return readout

    def _feed(self, groups: Sequence[Group], rows: Sequence[int]) -> tuple[Readout, float]:
        """Append slots; also says how long the backend took."""
        start = self.ledger.slots
        try:
            positions = [self.ledger.append(group) for group in groups]
            begin = perf_counter()
            readout = self.backend.macro(groups, positions, rows)
            return readout, perf_counter() - begin
        except BaseException:
            self.ledger.truncate(start)
            raise

    def _truncate(self, slots: int) -> None:
        if self.ledger.slots > slots:
            self.ledger.truncate(slots)
        if self.backend.slots > slots:
            self.backend.truncate(slots)

    def _align(self) -> None:
        """After an interrupted call: trust only the slots that ledger and backend both have."""
        self._truncate(min(self.ledger.slots, self.backend.slots))

    def _check_room(self, kept: int, groups: list[Group], covered: int) -> None:
        slots = kept + len(groups) - covered
        positions = slots if self.info.position_rule == "slot" else sum(map(len, groups))
        if positions > self.info.context_length:  # first: no larger cache would help
            raise ContextFullError(
                f"the prompt needs {positions} positions but the model's context has "
                f"{self.info.context_length}: shorten it"
            )
        if slots > self.info.capacity:
            raise ContextFullError(
                f"the prompt needs {slots} slots but the cache holds {self.info.capacity}: "
                "shorten it, or load the model with a larger cache"
            )


class _Rules:
    """When a group and an answer end; worked out once a run."""

    def __init__(self, engine: Engine, decoding: Decoding, sampler: Sampler) -> None:
        self.sampler = sampler
        self.verify = decoding.mode == "verify"
        self.max_tokens = decoding.max_tokens
        self.probabilities = decoding.probabilities
        self.eos_ids = frozenset(() if decoding.ignore_eos else engine.info.eos_ids)
        self.confidence = -math.inf if decoding.force_group else decoding.confidence
        self.judge_after = engine.info.stop_rule == "after"
        self.try_confidence = TRY * self.confidence if self.judge_after else self.confidence
        self.join_confidence = min(self.confidence, JOIN) if self.verify else self.confidence
        self.judged = not self.verify and decoding.force_group is None
        self.size = decoding.force_group or (1 if decoding.confidence >= 1 else engine.info.max_steps)
        if not sampler.micro_usable:
            self.size = 1

    def finish(self, tokens: Group, stats: Stats) -> FinishReason | None:
        """Whether the answer ends with this newest group (not yet counted in the statistics)."""
        if tokens[-1] in self.eos_ids:
            return "eos"
        return "length" if stats.tokens + len(tokens) >= self.max_tokens else None
