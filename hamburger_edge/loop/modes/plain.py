"""Mode plain: the base chooses every token, one per call.

Tokens that a grammar forces need no scores: they are read with the next call.
"""

from __future__ import annotations

from hamburger_edge.loop.answer_run import AnswerRun, Steps
from hamburger_edge.loop.step import StepToken


def plain(run: AnswerRun) -> Steps:
    while not run.over:
        if run.next_is_forced:
            yield run.force()
        elif (row := run.read()) is not None:
            choice = run.sampler.choose(row.logits)
            yield run.put([[StepToken(choice.token, choice.probability, row.p_stop, choice.top)]])
