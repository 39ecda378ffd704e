"""Groups of one size, whatever the stop head's probability is: for measurements and parity checks."""

from __future__ import annotations

from collections.abc import Callable

from hamburger_edge.loop.answer_run import AnswerRun, Steps
from hamburger_edge.loop.modes.merge import may_go_on
from hamburger_edge.loop.modes.micro_steps import MicroSteps
from hamburger_edge.loop.step import StepToken


def groups_of_size(size: int) -> Callable[[AnswerRun], Steps]:
    """Return a driver that merges groups of this many tokens, at most `max_group_tokens`."""

    def drive(run: AnswerRun) -> Steps:
        limit = min(size, run.info.max_group_tokens)
        while not run.over:
            if (row := run.read()) is None:
                continue
            with run.sampler.attempt():
                micro, choice = MicroSteps(run, row), run.sampler.choose(row.logits)
                group = [StepToken(choice.token, choice.probability, row.p_stop, choice.top)]
                while len(group) < min(limit, run.tokens_left) and may_go_on(run, group[-1].token):
                    logits, _ = micro.scores([token.token for token in group])
                    if (further := run.sampler.choose_micro(logits)) is None:
                        break
                    group.append(StepToken(further.token, further.probability, micro.p_stop))
            yield run.put([group])

    return drive
