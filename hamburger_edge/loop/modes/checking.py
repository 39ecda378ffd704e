"""The base checks a draft: it keeps the tokens that it would choose itself, with the same draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hamburger_edge.loop.answer_run import AnswerRun, BaseRow
from hamburger_edge.loop.step import Slot, Step, groups_of, step_of


def check(
    run: AnswerRun,
    draft: Sequence[Slot],
    doubted: Callable[[BaseRow, int], bool] | None = None,
    *,
    prompt: bool = False,
) -> Step:
    """Keep a draft up to the first token that the base would not choose.

        draft      a    b    c    d          fed slot by slot; row i: the base's scores after draft[i]
        base's     -    b    c    x    y     -> a b c stay; the next draft starts from row 2 with x

    In a slot of several tokens the base checks only the first one. The draft also ends where
    `doubted(row, slots so far)` holds. Forced tokens need no scores, so the rows before them are not read
    out. Unread tokens (a `prompt`, or groups to read again) are fed before the draft. The base then checks
    `a`, too, and the step may be empty.
    """
    text, sampler = run.text, run.sampler
    again, start = text.unread, text.ledger.slots
    kept = [] if again else [draft[0]]
    checked = draft[len(kept) :]
    sampler.rewind(sum(map(len, checked)))
    first = len(again) + len(kept) - 1  # the slot before the first checked one
    output_indices = [first + index for index, slot in enumerate(checked) if not slot[0].forced]
    output_indices.append(len(again) + len(draft) - 1)
    try:
        readout, seconds = text.feed([*again, *groups_of(draft)], output_indices)
        run.stats.count(seconds, prompt)
        row = BaseRow(readout)
        for slot in checked:
            newest, *merged = slot
            if newest.forced:
                choice = sampler.choose_forced()
            else:
                if doubted is not None and doubted(row, start + len(again) + len(kept)):
                    break
                choice = sampler.choose(row.logits)
                if choice.token != newest.token:
                    sampler.rewind(1)
                    break
                row = row.next
            for token in merged:
                sampler.propose(token.token, token.logprob)
            kept.append([newest._replace(probability=choice.probability, top=choice.top), *merged])
    except BaseException:
        text.truncate(start)
        raise
    text.truncate(start + len(again) + len(kept))
    text.unread, run.row = [], row
    return step_of(kept, probabilities=run.shows_probabilities)
