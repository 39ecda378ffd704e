"""The answer prefix: tokens that all answers of a task begin with.

The base checks them in the call that reads the prompt.
"""

from __future__ import annotations

import itertools

from hamburger_edge.loop.answer_run import AnswerRun, Steps
from hamburger_edge.loop.checking import check
from hamburger_edge.loop.step import StepToken


def open_answer(run: AnswerRun, slot_tokens: int) -> Steps:
    """Read the prompt and the answer prefix, in slots of so many tokens, in the same call.

    The step holds the prefix tokens that the base would choose itself; without any there is no step.
    """
    sampler, text = run.sampler, run.text
    applies = (
        run.decoding.confidence < 1 and sampler.grammar is None and not sampler.adjusts and not sampler.answer
    )
    prefix = run.info.answer_prefix[: run.max_tokens] if applies else ()
    if not prefix or not text.ledger.fits(*map(len, text.unread), *(1 for _ in prefix)) or run.over:
        return
    run.read(left=max(1, text.most_at_once - len(prefix)))
    if run.over:
        return
    with sampler.attempt():
        tokens = [StepToken(token, 1.0) for token in itertools.takewhile(sampler.propose, prefix)]
        slots = [tokens[start : start + slot_tokens] for start in range(0, len(tokens), slot_tokens)]
        step = check(run, slots, prompt=True)
    if step.tokens:
        yield run.report(step)
