"""Mode verify: the base checks every drafted token, so the text is plain decoding's, with fewer calls.

    row of the base -> draft (draft.py) -> one call reads and checks it (checking.py) -> row of the base

The call that reads the prompt checks a draft, too: of guesses, since there is no row yet.

Mode hybrid is verify with one rule more (`HybridRule`): tokens that are sure are merged, unchecked.
"""

from __future__ import annotations

from collections.abc import Sequence

from hamburger_edge.loop.answer_run import AnswerRun, BaseRow, Steps
from hamburger_edge.loop.modes.checking import check
from hamburger_edge.loop.modes.draft import Drafts
from hamburger_edge.loop.step import Slot, Step, StepToken, step_of

# If the base's top probability is below the confidence, it re-reads the newest merged groups, up to
# REREAD * max_group_tokens tokens. They hold nearly all misread tokens (docs/research/tasks.md), and each
# costs a row of the base's call.
REREAD = 2


def verify(run: AnswerRun) -> Steps:
    return _verify(run, None)


def hybrid(run: AnswerRun) -> Steps:
    return _verify(run, HybridRule(run))


def _verify(run: AnswerRun, rule: HybridRule | None) -> Steps:
    drafts = Drafts(run, rule)
    while not run.over:
        if run.next_is_forced:
            yield run.force()
            continue
        with run.sampler.attempt():
            step = None if run.prompt_read or run.sampler.answer else _first_step(run, drafts, rule)
            if step is None and (row := run.read()) is not None:
                step = _step(run, row, drafts, rule)
        if step is not None and step.tokens:
            yield run.report(step)


def _first_step(run: AnswerRun, drafts: Drafts, rule: HybridRule | None) -> Step | None:
    """Read the prompt, and check a draft in the same call. Without guesses nothing is read.

    Only the beginning of an answer is guessed: a cut answer continues from a row, to the same groups.
    """
    text = run.text
    draft = drafts.grow(None, min(text.room, text.most_at_once - 1))
    if not draft:
        return None
    run.read(left=max(1, text.most_at_once - len(draft)))
    if run.over:
        run.sampler.rewind(sum(map(len, draft)))
        return None
    return _checked(run, draft, drafts, rule, prompt=True)


def _step(run: AnswerRun, row: BaseRow, drafts: Drafts, rule: HybridRule | None) -> Step:
    text = run.text
    if rule is not None:
        rule.unread_doubted(row)
    room = min(text.room, text.chunk - len(text.unread))  # slots that one call may append
    draft = drafts.grow(row, room)
    if room > 0 and (len(draft) > 1 or text.unread):
        return _checked(run, draft, drafts, rule)
    run.leave_unread(draft)
    return step_of(draft, probabilities=run.shows_probabilities)


def _checked(
    run: AnswerRun,
    draft: Sequence[Slot],
    drafts: Drafts,
    rule: HybridRule | None,
    *,
    prompt: bool = False,
) -> Step:
    step = check(run, draft, None if rule is None else rule.doubts, prompt=prompt)
    drafts.settle(len(step.tokens))
    return step


class HybridRule:
    """Tokens with `p >= confidence ** (1 / max_group_tokens)` are merged unchecked: p >= confidence for a
    full group of them. If the base's top probability after merged groups is below the confidence, it reads
    them again token by token.
    """

    def __init__(self, run: AnswerRun) -> None:
        self._run = run
        self._longest = run.info.max_group_tokens
        self._unchecked = run.decoding.confidence ** (1 / self._longest)

    def merges(self, floor: float, slot: Sequence[StepToken]) -> bool:
        """Whether a token whose probability has this lower bound joins the slot, unchecked; with 0 never."""
        return 0 < floor >= self._unchecked and len(slot) < self._longest

    def doubts(self, row: BaseRow, stop: int) -> bool:
        """Whether merged slots before `stop` must be read again before the base chooses from this row."""
        return self._first_doubted(row, stop) < stop

    def unread_doubted(self, row: BaseRow) -> None:
        """Make the newest merged groups unread, token by token, if the base is below the confidence.

        All slots from the first of these groups on leave the cache. The next draft's call reads them again.
        """
        text = self._run.text
        first = self._first_doubted(row, text.ledger.slots)
        text.unread = [(token,) for group in text.ledger.groups[first:] for token in group]
        text.truncate(first)
        self._run.stats.reread_tokens += len(text.unread)

    def _first_doubted(self, row: BaseRow, stop: int) -> int:
        """Return the first of the answer's newest merged slots before `stop` if they must be read again.

        That is so if the base's top probability after them is below the confidence, and the cache has room
        for them token by token. Otherwise return `stop`.
        """
        sampler, ledger = self._run.sampler, self._run.text.ledger
        first = ledger.first_merged(min(len(sampler.answer), REREAD * self._longest), stop)
        more = sum(len(group) - 1 for group in ledger.groups[first:stop])
        if not more or more >= ledger.room_behind(stop) or sampler.forced is not None:
            return stop
        return first if sampler.surety(row.logits) < self._run.decoding.confidence else stop
