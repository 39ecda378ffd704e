"""Mode merge: the micro decoder adds tokens to the base's, and each group is read as one merged slot.

    row of the base -> first token -> micro tokens while 1 - p_stop >= confidence = a group
         ^                                                                             |
         +-------------------- the group becomes one slot -----------------------------+

Nothing checks a micro token.
"""

from __future__ import annotations

from hamburger_edge.loop.answer_run import AnswerRun, BaseRow, Steps
from hamburger_edge.loop.modes.micro_steps import MicroSteps, log_chance
from hamburger_edge.loop.step import Slot, StepToken

# By stop rule "after" a group's first micro step runs if the base's row gives 1 - p_stop >= TRY * confidence.
# It costs about a fifth of a macro step, and its own 1 - p_stop must then reach the confidence. Below TRY it
# hardly ever pays (docs/research/decisions.md).
TRY = 2 / 3


def merge(run: AnswerRun) -> Steps:
    while not run.over:
        if run.next_is_forced:
            yield run.force()
        elif (row := run.read()) is not None:
            with run.sampler.attempt():
                group = _group(run, row)
            yield run.put([group])


def _group(run: AnswerRun, row: BaseRow) -> Slot:
    """Return a group: the base's token, then micro tokens up to the first one below the confidence."""
    sampler, confidence, judges_after = (
        run.sampler,
        run.decoding.confidence,
        run.info.stop_rule == "after",
    )
    micro = MicroSteps(run, row)
    choice = sampler.choose(row.logits)
    tokens, group = [choice.token], [StepToken(choice.token, choice.probability, row.p_stop, choice.top)]
    trying = 1 - row.p_stop >= (TRY * confidence if judges_after else confidence)
    limit = min(run.info.max_group_tokens, run.tokens_left)
    while trying and len(tokens) < limit and may_go_on(run, tokens[-1]):
        logits, chance = micro.scores(tokens)
        trying = 1 - micro.p_stop >= confidence
        if judges_after and not trying:
            break  # the base chooses the next token
        logprob = log_chance(chance)
        judged = sampler.choose_judged(logits, logprob)
        if judged is None:
            break  # the sampler prefers another token than the stop head's
        tokens.append(judged.token)
        group.append(StepToken(judged.token, judged.probability, micro.p_stop, judged.top, logprob))
    return group


def may_go_on(run: AnswerRun, newest: int) -> bool:
    """Whether a micro token may follow the newest token of a group."""
    sampler = run.sampler
    return (
        not run.ends_with(newest) and sampler.forced is None and sampler.micro_usable and sampler.micro_open
    )
