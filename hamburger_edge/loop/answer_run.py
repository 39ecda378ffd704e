"""One answer in progress. A driver (plain.py, merge.py, verify.py) makes its steps with the methods here.

while not run.over:
    row = run.read()              the base's row after all tokens so far
    ...                           choose tokens: a group, or a draft that the base checks
    yield run.put(slots)          count the step, and leave its groups unread
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from hamburger_edge.drafts.copied_words import Words
from hamburger_edge.loop.backend import Floats, Readout
from hamburger_edge.loop.cached_text import CachedText
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import FinishReason, Slot, Step, StepToken, groups_of, step_of
from hamburger_edge.loop.turns import Flag

MAX_TOKENS = 256  # default length of an answer whose constraint has none

Steps = Generator[Step, None, None]


class BaseRow(NamedTuple):
    """One row of a readout: the base's outputs after one slot. Valid until the next call of the base."""

    readout: Readout
    number: int = 0

    @property
    def logits(self) -> Floats:
        logits: Floats = self.readout.logits[self.number]
        return logits

    @property
    def p_stop(self) -> float:
        return float(self.readout.p_stop[self.number])

    @property
    def features(self) -> Any:
        return self.readout.features[self.number]

    @property
    def next(self) -> BaseRow:
        return BaseRow(self.readout, self.number + 1)


class AnswerRun:
    """The limits, the state and the cost of one answer."""

    def __init__(
        self,
        text: CachedText,
        decoding: Decoding,
        sampler: Sampler,
        prompt: Sequence[int],  # without the answer so far
        *,
        words: Words | None,
        stats: Stats,
        cancel: Flag,
        eos_ids: Sequence[int],
    ) -> None:
        self.text, self.decoding, self.sampler, self.stats = text, decoding, sampler, stats
        self.info = text.info
        self.prompt, self.words = prompt, words
        self.max_tokens = decoding.max_tokens or sampler.constraint.max_tokens or MAX_TOKENS
        self.eos_ids = frozenset(() if decoding.ignore_eos else eos_ids)
        self.finish_reason: FinishReason | None = None
        self.row: BaseRow | None = None  # after all tokens so far; None: some of them are unread
        self.prompt_read = False  # also while it is being read
        self._cancel = cancel
        self._begun = False  # after the first step that follows the prompt's reading

    @property
    def over(self) -> bool:
        """Whether the answer has ended or was cancelled."""
        return self.finish_reason is not None or self._cancel.is_set()

    @property
    def tokens_left(self) -> int:
        return self.max_tokens - self.stats.tokens

    @property
    def next_is_forced(self) -> bool:
        """Whether the next token needs no row, because the grammar allows no other."""
        return self.row is None and self.sampler.forced is not None

    def ends_with(self, token: int) -> bool:
        """Whether the answer ends with its newest token, which this is."""
        return token in self.eos_ids or self.sampler.ended

    def read(self, left: int = 0) -> BaseRow | None:
        """Return the row after all tokens so far; read the unread groups first.

        Up to `left` groups stay unread; with `left` > 0 at least one does. The result is None if the answer
        was cancelled. While the prompt is read, that is checked before each call.
        """
        if self.row is None:
            reads_prompt, self.prompt_read = not self.prompt_read, True
            readout = None
            while len(self.text.unread) > left:
                if reads_prompt and self.over:
                    return None
                readout, seconds = self.text.read_chunk(left)
                self.stats.count(seconds, reads_prompt)
            self.row = None if readout is None or self.text.unread else BaseRow(readout)
        return None if self.over else self.row

    def force(self) -> Step:
        """Return the step of the next token, which the grammar forces."""
        choice = self.sampler.choose_forced()
        return self.put([[StepToken(choice.token, choice.probability, forced=True)]])

    def put(self, slots: Sequence[Slot]) -> Step:
        """Return the step of these slots, which stay unread."""
        self.leave_unread(slots)
        return self.report(step_of(slots, probabilities=self.shows_probabilities))

    def leave_unread(self, slots: Sequence[Slot]) -> None:
        self.text.unread = [*self.text.unread, *groups_of(slots)]
        self.row = None

    @property
    def shows_probabilities(self) -> bool:
        return self.decoding.top_probabilities is not None

    def report(self, step: Step) -> Step:
        """Count a step and return it with its finish reason."""
        stats = self.stats
        stats.tokens += len(step.tokens)
        stats.forced_tokens += step.forced
        stats.macro_steps += 1
        if not self._begun:
            stats.first_tokens, self._begun = stats.tokens, self.prompt_read
        self.finish_reason = self._finish(step.tokens[-1])
        return step._replace(finish_reason=self.finish_reason)

    def _finish(self, newest: int) -> FinishReason | None:
        """Return the reason if the answer ends with this token."""
        if newest in self.eos_ids:
            return "eos"
        if self.sampler.ended:
            return "stop"
        if self.tokens_left <= 0:
            return "length"
        return None if self.text.unread_fits else "context"
