"""The hierarchical loop: macro steps of the base, micro steps inside them, one KV slot for each group.

    prompt --prefill--> row -> first token -> micro tokens ... = a group ----yield----+
                         ^                                                            |
                         +------------- macro step: the group becomes one slot -------+

The newest group of an answer is `unread`: generated, but not in the cache yet. The next call of the base
feeds it as one merged slot, so an answer stays compressed when a conversation continues. Tokens that a
grammar forces after it need no model call: they join the next call of the base as separate groups.

Each mode is one driver, which can be read alone:

    plain.py     the base chooses every token
    merge.py     micro tokens join the base's token, unchecked
    verify.py    the base checks drafts; mode hybrid is verify with one rule more
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from hamburger_edge.drafts.copied_words import Words
from hamburger_edge.errors import InputError
from hamburger_edge.loop.answer_run import AnswerRun, Steps
from hamburger_edge.loop.backend import Backend
from hamburger_edge.loop.cached_text import CachedText
from hamburger_edge.loop.dial import Mode
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.modes.merge import merge
from hamburger_edge.loop.modes.plain import plain
from hamburger_edge.loop.modes.verify import hybrid, verify
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.turns import Flag

# Slots that may be reused for the beginning of a prompt. "none": no slots. "groups": slots of equal groups.
# "tokens": also merged slots of equal tokens.
Reuse = Literal["none", "groups", "tokens"]

Driver = Callable[[AnswerRun], Steps]

_DRIVERS: dict[Mode, Driver] = {"plain": plain, "verify": verify, "hybrid": hybrid, "merge": merge}


class Engine(CachedText):
    """Answers prompts with one backend and its cache; settings and sampler are passed to each run."""

    def __init__(self, backend: Backend, *, chunk: int = 256, words: Words | None = None) -> None:
        super().__init__(backend, chunk=chunk)
        self.words = words  # cuts prompts into words that drafts may copy; None: no drafts of them

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
        driver: Driver | None = None,  # instead of the mode's
        eos_ids: Sequence[int] | None = None,  # instead of the model's
    ) -> Steps:
        """Answer a prompt given as groups of `check_groups` (plain prompts: one token each).

        Bad input raises here, before the first step. The cache of one owner is never reused for another.

        The run ends after the step with a `finish_reason`. A cancelled run ends without one: before the first
        macro step, between two of them, or between two chunks of the prompt. "context" means that the last
        group has no free slot, or no position below the model's context length.
        """
        groups = list(groups)
        if not groups:
            raise InputError("the prompt is empty: give at least one token")
        self.align()
        matched = self.ledger.match(groups[:-1], merged=reuse == "tokens" and not decoding.exact)
        kept, covered = matched if reuse != "none" and self.may_use(owner) else (0, 0)
        self.ledger.check_room(kept, groups, covered)
        stats = stats if stats is not None else Stats()
        stats.prompt_tokens = sum(map(len, groups))
        stats.reused_tokens = sum(map(len, groups[:covered]))
        tokens = [token for group in groups for token in group]
        question = tokens[: len(tokens) - len(sampler.answer)]  # the prompt of an answer that goes on
        run = AnswerRun(
            self,
            decoding,
            sampler,
            question,
            words=self.words,
            stats=stats,
            cancel=cancel or Flag(),
            eos_ids=self.info.eos_ids if eos_ids is None else eos_ids,
        )
        return self._steps(kept, groups[covered:], run, driver or driver_of(decoding))

    def _steps(self, kept: int, unread: list[Group], run: AnswerRun, driver: Driver) -> Steps:
        self.truncate(kept)
        self.unread = unread
        try:
            yield from driver(run)
        finally:
            if not run.stats.macro_steps:
                self.unread = []  # no answer: forget the prompt, too


def driver_of(decoding: Decoding) -> Driver:
    """Return the mode's driver. At confidence 1 mode merge is mode plain."""
    return plain if decoding.mode == "merge" and decoding.confidence >= 1 else _DRIVERS[decoding.mode]
