"""Mode hybrid merges tokens that are sure and checks the others.

Below the confidence the base re-reads merged groups token by token.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from helpers.engine_runs import PROMPT, PROMPTS, check_the_books, run, said, sampler, shapes
from helpers.scripted_backend import EOS, ScriptedBackend, info
from hypothesis import given, settings
from hypothesis import strategies as st

from hamburger_edge.drafts.drafting import Costs
from hamburger_edge.loop.backend import MicroReadout, ModelInfo
from hamburger_edge.loop.ledger import Group
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.loop.modes.verify import REREAD
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding
from hamburger_edge.loop.step import Step
from hamburger_edge.loop.turns import Flag

SURE, UNSURE = 1e4, 0.1  # factors of the toy language's scores


class Misreader(ScriptedBackend):
    """A backend that misreads some merged groups, with a low top probability after them."""

    misreads = 0.3

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Any:
        if not self._misread(text):
            return super().scores(text, salt) * SURE
        return super().scores(text, salt + 1) * UNSURE

    def _misread(self, text: tuple[int, ...]) -> bool:
        """Whether the newest slot is merged and misleads."""
        ends = dict(zip(accumulate(map(len, self.context)), self.context, strict=True))
        if self._draft is not None or len(ends.get(len(text), ())) < 2 or text != self.text[: len(text)]:
            return False
        return self._misleads(text)

    def _misleads(self, text: tuple[int, ...]) -> bool:
        return (len(text) * 7 + text[-1]) % 100 < 100 * self.misreads


@pytest.mark.parametrize("mode", ["hybrid", "merge"])
def test_plain_model_merges_nothing_and_makes_no_micro_steps(mode: Any) -> None:
    merging, other = Engine(ScriptedBackend(info())), Engine(ScriptedBackend(info(max_group_tokens=1)))
    run(merging, mode=mode, confidence=0.1, max_tokens=30)
    assert max(map(len, merging.sequence)) > 1
    steps, stats = run(other, mode=mode, confidence=0.1, max_tokens=30)
    assert max(map(len, other.sequence)) == 1
    assert stats.micro_steps == 0
    plain, _ = run(Engine(ScriptedBackend(info())), confidence=1.0, max_tokens=30)
    assert said(steps) == said(plain)


@settings(max_examples=60)
@given(shapes(), PROMPTS, st.integers(1, 40), st.sampled_from([0.3, 0.7, 0.95]))
def test_uncertain_reading_chooses_no_token(
    shape: ModelInfo, prompt: list[int], most: int, confidence: float
) -> None:
    """So the text is plain decoding's wherever every misreading is a doubtful one."""
    engine = Engine(Misreader(shape, eos_rate=0.0))
    steps, stats = run(engine, prompt, mode="hybrid", confidence=confidence, max_tokens=most)
    check_the_books(engine, prompt, steps)
    plain, _ = run(Engine(Misreader(shape, eos_rate=0.0)), prompt, confidence=1.0, max_tokens=most)
    assert said(steps) == said(plain)
    assert stats.reread_tokens <= len(said(steps))  # each token once, at most


class Misled(Misreader):
    """A micro decoder that misreads like its base; its stop chance is higher there."""

    def stop(self, text: tuple[int, ...]) -> float:
        return 0.1 if self._misleads(text) else 0.02

    def micro(self, token: int) -> MicroReadout:
        logits, stop = super().micro(token)
        text = tuple(self._draft or ())
        return MicroReadout(ScriptedBackend.scores(self, text, 1) if stop == 0.1 else logits, stop)


def test_draft_with_the_error_of_the_base_chooses_no_token() -> None:
    """The base found its own misreading in the draft, and so kept it, however unsure it was."""
    engine = Engine(Misled(info(stop_rule="after"), eos_rate=0.0))
    steps, stats = run(engine, mode="hybrid", confidence=0.8, max_tokens=100)
    assert said(steps) == ScriptedBackend(eos_rate=0.0).plain(PROMPT, 100)
    assert stats.reread_tokens > 0
    assert stats.base_calls < 90


class Guesser(ScriptedBackend):
    """A micro decoder that errs at every second token; its stop chance is higher there."""

    def micro(self, token: int) -> MicroReadout:
        logits, _ = super().micro(token)
        right = int(logits.argmax()) == int(self.scores(tuple(self._draft or ())).argmax())
        return MicroReadout(logits, 0.02 if right else 0.5)

    def scores(self, text: tuple[int, ...], salt: int = 0) -> Any:
        return super().scores(text, salt) * SURE


def test_certain_tokens_are_merged_and_others_checked() -> None:
    backend = Guesser(info(stop_rule="after"), agreement=0.5, p_stop=0.02, eos_rate=0.0)
    engine = Engine(backend)
    steps, stats = run(engine, mode="hybrid", confidence=0.8, max_tokens=60, top_probabilities=2)
    check_the_books(engine, PROMPT, steps)
    assert said(steps) == backend.plain(PROMPT, 60)
    assert {len(group) for group in engine.ledger.groups} == {1, 2, 3, 4}
    assert sum(backend.macro_calls) > engine.ledger.slots  # some drafted tokens were rejected
    assert stats.reread_tokens == 0
    assert [group for step in steps for group in step.groups] == engine.sequence[len(PROMPT) :]
    assert all(len(step.probabilities) == len(step.tokens) for step in steps)
    for step in steps:  # of each slot the base checked the first token: it is the likeliest there
        top = iter(step.top)
        for group in step.groups:
            assert next(top)[0].token == group[0]
            assert [next(top) for _ in group[1:]] == [()] * (len(group) - 1)


@pytest.mark.parametrize(("p_stop", "most"), [(0.06, 1), (0.05, 4)])
def test_unchecked_group_reaches_the_confidence(p_stop: float, most: int) -> None:
    """Each token is surer than 0.8, and yet four of them together may not be."""
    backend = ScriptedBackend(info(stop_rule="after"), p_stop=p_stop, eos_rate=0.0)
    engine = Engine(backend)
    steps, _ = run(engine, mode="hybrid", confidence=0.8, max_tokens=60)
    assert max(len(group) for step in steps for group in step.groups) == most
    assert [len(step.tokens) for step in steps] == [4] * 15  # they are proposed all the same


def test_unchecked_token_never_ends_a_draft() -> None:
    """Three tokens at 0.75 each would leave too small a chance that the base keeps them all."""
    backend = ScriptedBackend(info(stop_rule="after"), p_stop=0.25, eos_rate=0.0)
    steps, _ = run(Engine(backend), mode="hybrid", confidence=0.3, max_tokens=60)
    assert [step.groups for step in steps] == [(step.tokens,) for step in steps]
    assert {len(step.tokens) for step in steps} == {4}


def test_by_rule_before_the_previous_step_gives_the_chance() -> None:
    """A micro token joins by the `p_stop` that came with the token before it."""

    class Alternating(Misreader):
        misreads = 0.0

        def stop(self, text: tuple[int, ...]) -> float:
            return (0.01, 0.15)[len(text) % 2]  # how sure the next token is

    engine = Engine(Alternating(info(stop_rule="before", draft_costs=Costs(micro=0.01)), eos_rate=0.0))
    steps, _ = run(engine, [5, 6, 7, 8], mode="hybrid", confidence=0.8, max_tokens=40)
    assert [len(step.tokens) for step in steps] == [4] * 10
    assert {tuple(map(len, step.groups)) for step in steps} == {(2, 2)}


@pytest.mark.parametrize("fewer", range(1, 8))
def test_a_stop_string_may_end_inside_a_merged_slot(fewer: int) -> None:
    backend = Guesser(info(stop_rule="after", max_group_tokens=8), agreement=0.8, p_stop=0.02, eos_rate=0.0)
    engine = Engine(backend)
    steps, _ = run(engine, mode="hybrid", confidence=0.8, max_tokens=60)
    while len(steps[-1].tokens) <= fewer:  # the newest step is long enough
        engine.drop(len(steps.pop().tokens))
    engine.drop(fewer)
    assert engine.ledger.groups == engine.backend.context
    assert [token for group in engine.sequence for token in group] == PROMPT + said(steps)[:-fewer]


def test_only_the_newest_groups_are_read_again() -> None:
    backend = Misreader(p_stop=0.02, eos_rate=0.0)
    engine = Engine(backend)
    _, stats = run(engine, mode="hybrid", confidence=0.8, max_tokens=200)
    most = backend.info.max_group_tokens
    assert stats.reread_tokens > 0
    # the last group begins before those tokens; a draft
    assert max(backend.macro_calls) < (REREAD + 2) * most
    assert any(len(group) > 1 for group in engine.ledger.groups)


def test_groups_before_the_answer_are_never_read_again() -> None:
    """Merged answers of earlier turns are not read again."""
    backend = Misreader(p_stop=0.1, eos_rate=0.0)
    backend.misreads = 1.0
    engine = Engine(backend)
    run(engine, mode="merge", confidence=0.5, max_tokens=8)
    earlier = engine.sequence
    assert any(len(group) > 1 for group in earlier)
    _, stats = run(engine, [*earlier, (9,), (8,)], mode="hybrid", confidence=0.5, max_tokens=12)
    assert stats.reread_tokens > 0
    assert engine.backend.context == engine.ledger.groups
    assert engine.ledger.groups[: len(earlier)] == earlier


@pytest.mark.parametrize(("slots", "reread", "rule"), [(8, 4, "token"), (7, 0, "slot")])
def test_uncertain_reading_is_used_in_a_full_cache(slots: int, reread: int, rule: str) -> None:
    """Nor where it would take all the room that is left."""
    backend = Misreader(info(cache_slots=slots, position_rule=rule), p_stop=0.1, eos_rate=0.0)
    backend.misreads = 1.0
    engine = Engine(backend)
    steps, stats = run(engine, mode="hybrid", confidence=0.5, max_tokens=100)
    check_the_books(engine, PROMPT, steps)
    assert steps[-1].finish_reason == "context"
    assert engine.ledger.slots == slots
    assert stats.reread_tokens == reread  # of eight slots, the first group found room, the next did not


RUN = [31, 32, 33, 8, 9]  # not in the prompt
COPIES = [5, *range(13, 18), 35, *range(24, 28), 5, 12, 34, 19, 18, 17, 36, 13, 14, 15, 35, 24, 25]
REPEATS = [*COPIES[:7], *RUN, *COPIES[7:19], *RUN, *COPIES[19:21], *RUN, *COPIES[21:]]


@pytest.mark.parametrize("mode", ["hybrid", "verify"])
@pytest.mark.parametrize("script", [COPIES, REPEATS], ids=["copies the prompt", "repeats itself"])
def test_cancelled_answer_continues_to_the_same_groups(script: list[int], mode: Any) -> None:
    """A regression: the continuation forgot which copies the base had kept, and copied the answer, too."""
    prompt = [*range(10, 30), 3, *range(20, 12, -1)]

    def begun() -> tuple[Engine, Sampler]:
        engine = Engine(ScriptedBackend(info(draft_index=None)))
        engine.backend.say(script, len(prompt))
        source = sampler(engine.backend)
        source.begin(prompt)
        return engine, source

    def answered(engine: Engine, source: Sampler, groups: list[Group], cancel: Flag) -> Iterator[Step]:
        return engine.run(groups, Decoding(mode=mode, confidence=0.5), source, cancel=cancel, reuse="groups")

    engine, source = begun()
    steps = list(answered(engine, source, [(token,) for token in prompt], Flag()))
    whole = engine.sequence
    assert whole[len(prompt) :] != [(token,) for token in [*script, EOS]] or mode == "verify"
    for cut in range(1, len(steps)):
        engine, source = begun()
        cancel = Flag()
        for number, _ in enumerate(answered(engine, source, [(token,) for token in prompt], cancel), 1):
            if number == cut:
                cancel.set()
        said = sampler(engine.backend)
        said.restore(source.state())
        list(answered(engine, said, engine.sequence, Flag()))
        assert engine.sequence == whole, cut
