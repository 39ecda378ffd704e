"""The hierarchical loop: macro steps of the base, micro steps inside them, one KV slot for each group.

    prompt --prefill--> readout -> first token -> micro tokens ... = a group ----yield----+
                           ^                                                              |
                           +------------- macro step: the group becomes one slot ---------+

The newest group of an answer is `unread`: generated, but not in the cache yet. The next call of the base
feeds it as one merged slot, so an answer stays compressed when a conversation continues. Tokens that a
grammar forces after it need no model call: they join the next call of the base as separate groups.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from time import perf_counter
from typing import Literal

from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import Backend, Floats, Readout, Snapshot
from hamburger_edge.loop.copied_words import Words
from hamburger_edge.loop.ledger import Group, Ledger
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import Rules, Step, decisions, open_answer, say
from hamburger_edge.loop.turns import Flag
from hamburger_edge.support.values import whole_in

# If the base's top probability is below the confidence, it re-reads the newest merged groups, up to
# REREAD * max_group_tokens tokens. They hold nearly all misread tokens (docs/research/tasks.md), and each
# costs a row of the base's call.
REREAD = 2

# Slots that may be reused for the beginning of a prompt. "none": no slots. "groups": slots of equal groups.
# "tokens": also merged slots of equal tokens.
Reuse = Literal["none", "groups", "tokens"]


class Engine:
    """Drives one backend and keeps its ledger; settings and sampler are passed to each run."""

    def __init__(self, backend: Backend, *, chunk: int = 256, words: Words | None = None) -> None:
        self.backend = backend
        self.info = backend.info
        self.chunk = chunk  # upper limit of slots per prefill call
        self.words = words  # cuts prompts into words that drafts may copy; None: no drafts of them
        self.ledger = Ledger.of(self.info)
        # the conversation whose saved cache was restored; None: the cache was computed here
        self.owner: object = None
        self.unread: list[Group] = []  # generated or prompted, but not in the cache

    @property
    def sequence(self) -> list[Group]:
        """All groups so far: those in the cache, then the unread ones."""
        return [*self.ledger.groups, *self.unread]

    def run(
        self,
        groups: Sequence[Group],
        decoding: Decoding,
        sampler: Sampler,
        *,
        cancel: Flag | None = None,
        stats: Stats | None = None,
        reuse: Reuse = "tokens",
        owner: object = None,
    ) -> Generator[Step, None, None]:
        """Answer a prompt given as groups of `check_groups` (plain prompts: one token each).

        Bad input raises here, before the first step. The cache of one owner is never reused for another.

        The run ends after the step with a `finish_reason`. A cancelled run ends without one: before the first
        macro step, between two of them, or between two chunks of the prompt. "context" means that the last
        group has no free slot, or no position below the model's context length.
        """
        if not groups:
            raise InputError("the prompt is empty: give at least one token")
        if decoding.force_group is not None and decoding.force_group > self.info.max_group_tokens:
            raise InputError(
                f"force_group must be 1 to {self.info.max_group_tokens} for this model, "
                f"got {decoding.force_group}"
            )
        self._align()
        matched = self.ledger.match(list(groups[:-1]), merged=reuse == "tokens" and not decoding.exact)
        kept, covered = matched if reuse != "none" and self._may_use(owner) else (0, 0)
        self.ledger.check_room(kept, list(groups), covered)
        stats = stats if stats is not None else Stats()
        stats.prompt_tokens = sum(map(len, groups))
        stats.reused_tokens = sum(map(len, groups[:covered]))
        cancel = cancel or Flag()
        tokens = [token for group in groups for token in group]
        asked = tokens[: len(tokens) - len(sampler.answer)]  # the prompt of an answer that goes on
        rules = Rules(self.info, decoding, sampler, asked, self.words)
        return self._run(kept, list(groups[covered:]), rules, stats, cancel)

    def check_groups(self, groups: Iterable[Iterable[int]]) -> list[Group]:
        """Return the groups as tuples; raise InputError for an invalid token or group size."""
        last, most = self.info.vocab_size - 1, self.info.max_group_tokens
        checked = [tuple(whole_in("a token", token, 0, last) for token in group) for group in groups]
        for group in checked:
            if not 1 <= len(group) <= most:
                raise InputError(f"a group holds 1 to {most} tokens, got {len(group)}")
        return checked

    def keep(self, groups: Sequence[Group], owner: object = None) -> None:
        """Truncate the cache to the longest beginning that it shares with these groups of this owner."""
        self._align()
        self._truncate(self.ledger.match(list(groups), merged=False).slots if self._may_use(owner) else 0)
        self.unread = []

    def fill(self, groups: Sequence[Group], snapshot: Snapshot, owner: object) -> None:
        """Restore the cache from a snapshot with a slot for each of these groups, for this owner only."""
        self.keep([])
        for group in groups:
            self.ledger.append(group)
        self.backend.restore(snapshot, len(groups))
        self.owner = owner

    def drop(self, tokens: int) -> None:
        """Remove the last tokens of the newest step; at least one token of it must stay."""
        while tokens:
            if not self.unread:  # a verified step is in the cache
                self.unread = [self.ledger.groups[-1]]
                self._truncate(self.ledger.slots - 1)
            newest = self.unread.pop()
            if left := newest[:-tokens]:
                self.unread.append(left)
            tokens -= len(newest) - len(left)

    def _run(
        self, kept: int, prompt: list[Group], rules: Rules, stats: Stats, cancel: Flag
    ) -> Generator[Step, None, None]:
        self._truncate(kept)
        self.unread = prompt
        readout: Readout | None = None  # after all tokens so far; None: some of them are unread
        row, prompt_read = 0, False
        first = True  # until the first group after the base has read the prompt
        try:
            while not cancel.is_set():
                if readout is None and not rules.ahead():
                    reads_prompt, prompt_read = not prompt_read, True
                    if not (reads_prompt and self._may_open(rules)):
                        row, readout = 0, self._read(stats, cancel if reads_prompt else None)
                        continue  # no readout if cancelled in the middle of the prompt
                    step, readout, row = self._open(rules, stats, cancel)
                else:
                    if readout is not None and rules.hybrid:
                        self._doubt(readout.logits[row], rules, stats)
                    step, readout, row = self._say(readout, row, rules, stats)
                if not step.tokens:
                    continue
                finish = rules.finish(step.tokens, stats)
                if finish is None and self.unread and not self.ledger.fits(*map(len, self.unread)):
                    finish = "context"
                stats.tokens += len(step.tokens)
                stats.forced_tokens += step.forced
                stats.macro_steps += 1
                if first:
                    stats.first_tokens, first = stats.tokens, not prompt_read
                yield step._replace(finish_reason=finish)
                if finish:
                    return
        finally:
            if not stats.macro_steps:
                self.unread = []  # no answer: forget the prompt, too

    def _read(self, stats: Stats, cancel: Flag | None, left: int = 0) -> Readout | None:
        """Append the unread groups to the cache and return the readout of the last one.

        Up to `left` groups stay unread; with `left` > 0 at least one does. `cancel` is given for the prompt
        only, and is checked before each chunk.
        """
        readout = None
        while len(self.unread) > left:
            if cancel and cancel.is_set():
                return None
            chunk = self.unread[: min(self._at_once(), len(self.unread) - (left > 0))]
            readout, seconds = self._feed(chunk, [len(chunk) - 1])
            self.unread = self.unread[len(chunk) :]
            stats.count(seconds, prompt=cancel is not None)
        return readout

    def _doubt(self, logits: Floats, rules: Rules, stats: Stats) -> None:
        """Make the newest merged groups unread, token by token, if the base is below the confidence.

        All slots from the first of these groups on leave the cache. The next draft's call reads them again.
        """
        first = self._doubted(logits, self.ledger.slots, rules)
        self.unread = [(token,) for group in self.ledger.groups[first:] for token in group]
        self._truncate(first)
        stats.reread_tokens += len(self.unread)

    def _doubted(self, logits: Floats, stop: int, rules: Rules) -> int:
        """Return the first of the answer's newest merged slots before `stop` if they must be read again.

        That is so if the base's top probability after them (`logits`) is below the confidence, and the cache
        has room for them token by token. Otherwise return `stop`.
        """
        ledger = self.ledger
        first = ledger.first_merged(min(len(rules.sampler.answer), REREAD * self.info.max_group_tokens), stop)
        more = sum(len(group) - 1 for group in ledger.groups[first:stop])
        return first if more and more < ledger.room_behind(stop) and rules.doubts(logits) else stop

    def _may_open(self, rules: Rules) -> bool:
        """Whether there is an answer prefix, with free slots and positions for it."""
        answer_prefix = rules.answer_prefix
        return bool(answer_prefix) and self.ledger.fits(*map(len, self.unread), *(1 for _ in answer_prefix))

    def _open(self, rules: Rules, stats: Stats, cancel: Flag) -> tuple[Step, Readout | None, int]:
        """Read the prompt and the answer prefix in the same call.

        The step holds the prefix tokens that the base would choose itself, possibly none.
        """
        self._read(stats, cancel, left=max(1, self._at_once() - len(rules.answer_prefix)))
        if cancel.is_set():
            return Step((), (), (), None), None, 0
        with rules.sampler.attempt():
            return self._verify(open_answer(rules), rules, stats, prompt=True)

    def _say(
        self, readout: Readout | None, row: int, rules: Rules, stats: Stats
    ) -> tuple[Step, Readout | None, int]:
        """Run one macro step. Return it with the readout and row of the next one, if it was verified."""
        with rules.sampler.attempt():
            free = min(self.ledger.room, self.chunk) - len(self.unread)
            room = free if rules.verify else rules.max_tokens
            step = say(self.backend, readout, row, rules, room, stats)
            if rules.verify and readout is not None and room > 0 and (len(step.groups) > 1 or self.unread):
                return self._verify(step, rules, stats)
            self.unread = [*self.unread, *step.groups]
            return step, None, 0

    def _verify(
        self, draft: Step, rules: Rules, stats: Stats, *, prompt: bool = False
    ) -> tuple[Step, Readout, int]:
        """Keep the tokens of a draft up to the first one that the base would not choose with the same draws.

            draft      a    b    c    d          fed slot by slot; row i: the base's scores after draft[i]
            base's     -    b    c    x    y     -> a b c stay; the next group starts from row 2 with x

        In a slot of several tokens the base checks only the first one. The others had `p >= rules.unchecked`,
        or belong to the answer prefix. The draft also ends where the base must read merged groups again
        (`_doubted`). Forced tokens need no scores, so the rows before them are not read out. Unread tokens (a
        `prompt`, or groups to read again) are fed before the draft. The base then checks `a`, too, and the
        step may be empty.
        """
        sampler, again, groups = rules.sampler, self.unread, draft.groups
        doubts = rules.hybrid and not prompt  # the answer prefix is never read again
        start, kept = self.ledger.slots, 0 if again else 1
        checked = groups[kept:]
        drafted = iter(sampler.rewind(sum(map(len, checked))))  # log-probabilities of the draft's tokens
        decided, forced = decisions(checked, sampler)
        ahead = len(again) + kept - 1  # the slot before the first checked one
        output_indices = [*(ahead + index for index in decided), len(again) + len(groups) - 1]
        agreed, row = sum(map(len, groups[:kept])), 0
        probabilities, top = list(draft.probabilities[:agreed]), list(draft.top[:agreed])
        try:
            readout, seconds = self._feed([*again, *groups], output_indices)
            stats.count(seconds, prompt)
            for group in checked:
                _, *logprobs = islice(drafted, len(group))
                if sampler.forced is not None:
                    choice = sampler.choose_forced()
                    forced -= 1
                else:
                    read = start + len(again) + kept  # slots
                    if doubts and self._doubted(readout.logits[row], read, rules) < read:
                        break
                    choice = sampler.choose(readout.logits[row])
                    if choice.token != group[0]:
                        sampler.rewind(1)
                        break
                    row += 1
                for token, logprob in zip(group[1:], logprobs, strict=True):
                    forced -= sampler.forced is not None
                    sampler.propose(token, logprob)
                if draft.probabilities:
                    probabilities += [
                        choice.probability,
                        *draft.probabilities[agreed + 1 : agreed + len(group)],
                    ]
                    top += [choice.top, *draft.top[agreed + 1 : agreed + len(group)]]
                agreed += len(group)
                kept += 1
        except BaseException:
            self._truncate(start)
            raise
        self._truncate(start + len(again) + kept)
        self.unread = []
        if rules.drafter:
            rules.drafter.settle(agreed - 1)
        stops = draft.stop_probabilities[:agreed]
        shown = tuple(probabilities), stops, None, draft.forced - forced, groups[:kept], tuple(top)
        step = Step(draft.tokens[:agreed], *shown)
        return step, readout, row

    def _at_once(self) -> int:
        """Return the most groups per call. A call into the empty cache leaves one slot free (see
        `Backend.macro`)."""
        return self.chunk if self.ledger.slots else min(self.chunk, max(1, self.info.cache_slots - 1))

    def _feed(self, groups: Sequence[Group], output_indices: Sequence[int]) -> tuple[Readout, float]:
        """Append slots; return the readout and the seconds inside the backend."""
        start = self.ledger.slots
        try:
            positions = [self.ledger.append(group) for group in groups]
            begin = perf_counter()
            readout = self.backend.macro(groups, positions, output_indices)
            return readout, perf_counter() - begin
        except BaseException:
            self.ledger.truncate(start)
            raise

    def _truncate(self, slots: int) -> None:
        if self.ledger.slots > slots:
            self.ledger.truncate(slots)
        if self.backend.slots > slots:
            self.backend.truncate(slots)
        if not slots:
            self.owner = None

    def _may_use(self, owner: object) -> bool:
        return self.owner is None or self.owner is owner

    def _align(self) -> None:
        """After an interrupted call, keep only the slots that ledger and backend both have."""
        self._truncate(min(self.ledger.slots, self.backend.slots))
