"""The loop with a grammar, on a scripted backend that counts its calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.engine_runs import check_the_books, said
from helpers.grammar_walks import start
from helpers.schemas import check, schemas
from helpers.scripted_backend import EOS, ScriptedBackend, info
from helpers.toys.chat_models import toy_model
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hamburger_edge.benchmarks.requests.our_answers import single
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import MODES
from hamburger_edge.loop.modes.engine import Engine
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, SamplingSettings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import Step
from hamburger_edge.structured.grammar import Grammars

PROMPT = [70, 71, 72]
LONG = {"const": "the cat sat on the mat, the cat sat on the mat"}  # many more tokens than a group holds


@dataclass
class Loop:
    """Structured answers of a scripted backend."""

    grammars: Grammars
    tokenizer: Tokenizer

    def backend(self, **options: Any) -> ScriptedBackend:
        shape = {name: options.pop(name) for name in list(options) if name in info().__dataclass_fields__}
        if shape.get("draft_vocab") is not None:
            shape["draft_vocab"] = np.array(shape["draft_vocab"])
        described = info(vocab_size=self.tokenizer.vocab_size, **shape)
        return ScriptedBackend(described, **{"agreement": 0.7, **options})

    def run(
        self,
        backend: ScriptedBackend,
        structure: dict[str, Any],
        sampling: dict[str, Any] | None = None,
        prompt: Sequence[int] = PROMPT,
        **options: Any,
    ) -> tuple[list[Step], Stats, Sampler, Engine]:
        grammar = start(self.grammars, **structure)
        settings = SamplingSettings(**(sampling or {}))
        sampler = Sampler(settings, backend.info.vocab_size, backend.info.draft_vocab, constraint=grammar)
        sampler.begin(prompt)
        engine, stats, driver = Engine(backend), Stats(), options.pop("driver", None)
        groups = [(token,) for token in prompt]
        steps = list(engine.run(groups, Decoding(**options), sampler, stats=stats, driver=driver))
        check_the_books(engine, [*prompt], steps)
        assert stats.forced_tokens == sum(step.forced for step in steps)
        return steps, stats, sampler, engine


@pytest.fixture(scope="module")
def loop(grammars: Grammars, tokenizer: Tokenizer) -> Loop:
    return Loop(grammars, tokenizer)


def test_answer_of_forced_tokens_needs_no_model_call(loop: Loop) -> None:
    backend = loop.backend()
    steps, stats, sampler, engine = loop.run(backend, {"json_schema": LONG})
    assert loop.tokenizer.decode(said(steps)) == json.dumps(LONG["const"])
    assert (steps[-1].finish_reason, sampler.constraint.complete) == ("stop", True)
    assert stats.forced_tokens == stats.tokens == stats.first_tokens > 8
    assert (backend.macro_calls, backend.micro_calls) == ([], 0)
    assert len(engine.unread) == len(PROMPT) + stats.tokens  # the next answer reads the prompt, too


def test_forced_tokens_at_the_beginning_ride_with_the_prompt(loop: Loop) -> None:
    structure = {"regex": "the cat sat on the mat[0-9]x"}
    backend = loop.backend()
    steps, stats, *_ = loop.run(backend, structure)
    ahead = len(loop.tokenizer.encode("the cat sat on the mat"))
    assert backend.macro_calls == [len(PROMPT) + ahead]
    assert stats.forced_tokens == stats.first_tokens == ahead + 1
    assert stats.base_calls == 0
    assert loop.tokenizer.decode(said(steps))[-1] == "x"


DIGITS = {"regex": "[0-9]the cat sat on the mat[0-9]"}


@pytest.mark.parametrize(
    ("options", "p_stop"),
    [({"confidence": 0.0}, 0.0), ({"confidence": 1.0}, 0.0), ({"mode": "verify"}, 1.0)],
)
def test_a_run_of_forced_tokens_rides_in_one_call(loop: Loop, options: dict[str, Any], p_stop: float) -> None:
    """One token a slot, with the group before it; none of them has a micro step."""
    backend = loop.backend(p_stop=p_stop)
    steps, stats, *_ = loop.run(backend, DIGITS, **options)
    run_length = len(loop.tokenizer.encode("the cat sat on the mat"))
    assert backend.macro_calls == [len(PROMPT), 1 + run_length]
    assert (stats.base_calls, stats.micro_steps, stats.forced_tokens) == (1, 0, run_length)
    assert {len(group) for group in backend.context} == {1}
    # a draft holds the run; otherwise each token is a separate step
    assert len(steps[0].tokens) == (1 + run_length if "mode" in options else 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_longer_than_a_call_may_be_takes_several(loop: Loop, mode: str) -> None:
    backend = loop.backend(cache_slots=2000, context_length=2000)
    steps, stats, *_ = loop.run(backend, {"regex": "[0-9](x y ){300}[0-9]"}, mode=mode, max_tokens=1500)
    assert steps[-1].finish_reason == "stop"
    assert stats.forced_tokens > 256
    assert max(backend.macro_calls) <= 256


def test_a_full_cache_ends_a_forced_run(loop: Loop) -> None:
    for mode in MODES:
        backend = loop.backend(cache_slots=12)
        steps, _, sampler, _ = loop.run(backend, {"json_schema": LONG}, mode=mode)
        assert (steps[-1].finish_reason, sampler.constraint.complete) == ("context", False)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=50)
@given(data=st.data())
def test_complete_answers_follow_their_schema(loop: Loop, mode: str, data: st.DataObject) -> None:
    schema = data.draw(schemas)
    options = {
        "confidence": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        "max_tokens": data.draw(st.sampled_from([7, 300])),
    }
    sampling = {"temperature": data.draw(st.sampled_from([0.0, 1.0])), "seed": 3, "frequency_penalty": 0.3}
    shape = {
        "position_rule": data.draw(st.sampled_from(["token", "slot"])),
        "stop_rule": data.draw(st.sampled_from(["before", "after"])),
        "draft_vocab": data.draw(st.sampled_from([None, list(range(60, 130))])),
    }
    backend = loop.backend(cache_slots=2000, context_length=2000, **shape)
    steps, _stats, sampler, _ = loop.run(backend, {"json_schema": schema}, sampling, mode=mode, **options)
    finish, grammar = steps[-1].finish_reason, sampler.constraint
    assert finish in ("stop", "eos", "length")
    assert grammar.complete or finish == "length"
    tokens = [token for token in said(steps) if token != EOS]
    if grammar.complete:
        check(schema, loop.tokenizer.decode(tokens))
    if finish == "length":
        assert len(tokens) == options["max_tokens"]


@pytest.mark.parametrize(("regex", "banned"), [("[0-9]the cat", " cat"), ("[0-9]x", "0123456789")])
def test_a_structure_that_needs_a_banned_token_is_an_error(loop: Loop, regex: str, banned: str) -> None:
    tokens = loop.tokenizer.encode(banned)
    with pytest.raises(InputError, match="banned"):
        loop.run(loop.backend(), {"regex": regex}, {"logit_bias": dict.fromkeys(tokens, -100)})


@settings(max_examples=40)
@given(schema=schemas, temperature=st.sampled_from([0.0, 1.0]))
@example(schema={"type": "string", "format": "date"}, temperature=1.0)
def test_how_forced_tokens_are_fed_does_not_change_plain_decoding(
    loop: Loop, schema: dict[str, Any], temperature: float
) -> None:
    """At confidence 1 and in verify mode, with the same draws."""
    plain = None
    for options in (
        {"confidence": 1, "driver": single},
        {"confidence": 1},
        {"mode": "verify", "confidence": 1},
        {"mode": "verify", "confidence": 0.3},
    ):
        backend = loop.backend(cache_slots=2000, context_length=2000)
        sampling = {"temperature": temperature, "seed": 5}
        steps, _, sampler, _ = loop.run(backend, {"json_schema": schema}, sampling, max_tokens=120, **options)
        drawn = sampler.state() | {"copies": {}}  # verify mode alone counts them
        answer = said(steps), steps[-1].finish_reason, drawn
        plain = plain or answer
        assert answer == plain


def test_a_suppressed_token_that_only_a_draft_would_need_is_no_error(loop: Loop) -> None:
    """A draft that went astray met a banned forced token, and the whole answer failed."""
    [x], [y] = loop.tokenizer.encode("x"), loop.tokenizer.encode("y")
    structure, banned = {"regex": "[12][12][12](3x|4y|5y|6y)"}, {"logit_bias": {x: -100}}
    answered = 0
    for prompt in range(70, 90):
        given: Any = (loop.backend(p_stop=0.0), structure, banned, [prompt])
        try:
            plain = said(loop.run(*given, confidence=1.0)[0])
        except InputError:
            continue  # the base itself chooses 3
        given[0].truncate(0)
        assert said(loop.run(*given, mode="verify")[0]) == plain
        assert plain[-1] == y
        answered += 1
    assert answered > 10


def test_micro_steps_wait_where_the_draft_vocab_holds_only_suppressed_tokens(loop: Loop) -> None:
    """The base can still choose another one."""
    one, two, x, y = (loop.tokenizer.encode(letter)[0] for letter in "12xy")
    backend = loop.backend(draft_vocab=[one, two, x], p_stop=0.0)
    for mode in MODES:
        steps, *_ = loop.run(backend, {"regex": "[12][xy]"}, {"logit_bias": {x: -100}}, mode=mode)
        assert said(steps)[1] == y


def test_error_inside_a_step_removes_undelivered_tokens(tokenizer: Tokenizer) -> None:
    [*_, banned] = tokenizer.encode("the cat")
    chat = toy_model(tokenizer).chat(logit_bias={banned: -100})
    with pytest.raises(InputError, match="banned"):
        list(chat.send("hello", regex="[0-9]the cat"))
    assert chat._sampling.answer == chat._sampling.answer[:2]
    list(chat.send("hello", regex="[0-9]x"))
    assert chat.messages[-1].text[-1] == "x"
