"""The loop with a grammar, on a scripted backend that counts what it is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from chat_models import toy_model
from engine_runs import check_the_books, said
from grammar_walks import start
from hypothesis import example, given, settings
from hypothesis import strategies as st
from schemas import check, schemas
from scripted_backend import EOS, ScriptedBackend, info

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import MODES
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.grammar import Grammars
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Decoding, SamplingSettings
from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import Step

PROMPT = [70, 71, 72]
LONG = {"const": "the cat sat on the mat, the cat sat on the mat"}  # many more tokens than a group holds


class Loop:
    """Structured answers of a scripted backend."""

    def __init__(self, grammars: Grammars, tokenizer: Tokenizer) -> None:
        self.grammars, self.tokenizer = grammars, tokenizer

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
        draft_vocab = backend.info.draft_vocab
        grammar = start(self.grammars, draft_vocab, **structure)
        settings = SamplingSettings(**(sampling or {}))
        sampler = Sampler(settings, backend.info.vocab_size, draft_vocab, grammar=grammar)
        sampler.begin(prompt)
        engine, stats = Engine(backend), Stats()
        steps = list(engine.run([(token,) for token in prompt], Decoding(**options), sampler, stats=stats))
        check_the_books(engine, [*prompt], steps)
        assert stats.forced_tokens == sum(step.forced for step in steps)
        return steps, stats, sampler, engine


@pytest.fixture(scope="module")
def loop(grammars: Grammars, tokenizer: Tokenizer) -> Loop:
    return Loop(grammars, tokenizer)


def test_an_answer_that_is_forced_from_the_beginning_asks_nobody(loop: Loop) -> None:
    backend = loop.backend()
    steps, stats, sampler, engine = loop.run(backend, {"json_schema": LONG})
    assert loop.tokenizer.decode(said(steps)) == json.dumps(LONG["const"])
    assert (steps[-1].finish_reason, sampler.grammar.complete) == ("stop", True)
    assert stats.forced_tokens == stats.tokens == stats.first_tokens > 8
    assert (backend.macro_calls, backend.micro_calls) == ([], 0)
    assert len(engine.unread) == len(PROMPT) + stats.tokens  # whatever comes next reads the prompt, too


def test_forced_tokens_at_the_beginning_ride_with_the_prompt(loop: Loop) -> None:
    structure = {"regex": "the cat sat on the mat[0-9]x"}
    backend = loop.backend()
    steps, stats, *_ = loop.run(backend, structure)
    ahead = len(loop.tokenizer.encode("the cat sat on the mat"))
    assert backend.macro_calls == [len(PROMPT) + ahead]
    assert stats.forced_tokens == ahead + 1
    assert stats.first_tokens == ahead + 1
    assert stats.base_calls == 0
    assert loop.tokenizer.decode(said(steps))[-1] == "x"


@pytest.mark.parametrize("confidence", [0.0, 0.8, 1.0])
def test_a_run_of_forced_tokens_rides_in_one_call(loop: Loop, confidence: float) -> None:
    """One token a slot, with the group before it; none of them has a micro step."""
    structure = {"regex": "[0-9]the cat sat on the mat[0-9]"}
    backend = loop.backend(p_stop=0.0)
    steps, stats, *_ = loop.run(backend, structure, confidence=confidence)
    run_length = len(loop.tokenizer.encode("the cat sat on the mat"))
    assert backend.macro_calls == [len(PROMPT), 1 + run_length]
    assert (stats.base_calls, stats.micro_steps) == (1, 0)
    assert [len(step.tokens) for step in steps] == [1] * (run_length + 2)


def test_one_by_one_every_token_has_a_call_of_its_own(loop: Loop) -> None:
    backend = loop.backend()
    structure = {"regex": "[0-9]the cat sat on the mat"}
    _steps, stats, *_ = loop.run(backend, structure, forced="single", confidence=1)
    assert backend.macro_calls == [len(PROMPT)] + [1] * (stats.tokens - 1)


def test_merged_forced_tokens_fill_groups(loop: Loop) -> None:
    backend = loop.backend(p_stop=0.0)
    structure = {"regex": "[0-9]the cat sat on the mat[0-9]x"}
    steps, _stats, *_ = loop.run(backend, structure, forced="merge", confidence=0.0)
    sizes = [len(step.tokens) for step in steps]
    assert max(sizes) == backend.info.max_group_tokens
    assert sizes[0] == backend.info.max_group_tokens  # the digit, and what follows it
    assert backend.macro_calls == [len(PROMPT), len(backend.context) - len(PROMPT)]


def test_a_slot_of_a_draft_holds_no_more_forced_tokens_than_a_group(loop: Loop) -> None:
    backend = loop.backend(p_stop=0.0)
    loop.run(backend, {"regex": "[0-9]the cat sat on the mat[0-9]x"}, forced="merge", mode="hybrid")
    assert 1 < max(map(len, backend.context)) <= backend.info.max_group_tokens


def test_in_verify_mode_forced_tokens_are_read_with_the_draft_and_not_verified(loop: Loop) -> None:
    backend = loop.backend(p_stop=1.0)
    structure = {"regex": "[0-9]the cat sat on the mat[0-9]"}
    steps, _stats, *_ = loop.run(backend, structure, mode="verify")
    run_length = len(loop.tokenizer.encode("the cat sat on the mat"))
    assert backend.macro_calls == [len(PROMPT), 1 + run_length]
    assert len(steps[0].tokens) == 1 + run_length
    assert steps[0].forced == run_length


@pytest.mark.parametrize("mode", MODES)
def test_a_run_longer_than_a_call_may_be_takes_several(loop: Loop, mode: str) -> None:
    backend = loop.backend(cache_slots=2000, context_length=2000)
    steps, stats, *_ = loop.run(backend, {"regex": "[0-9](x y ){300}[0-9]"}, mode=mode, max_tokens=1500)
    assert steps[-1].finish_reason == "stop"
    assert stats.forced_tokens > 256
    assert max(backend.macro_calls) <= 256


def test_a_full_cache_ends_a_forced_run(loop: Loop) -> None:
    for mode in MODES:
        backend = loop.backend(cache_slots=12, context_length=12)
        steps, _, sampler, _ = loop.run(backend, {"json_schema": LONG}, mode=mode)
        assert (steps[-1].finish_reason, sampler.grammar.complete) == ("context", False)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=50)
@given(data=st.data())
def test_complete_answers_follow_their_schema(loop: Loop, mode: str, data: st.DataObject) -> None:
    schema = data.draw(schemas)
    options = {
        "forced": data.draw(st.sampled_from(["split", "merge", "single"])),
        "confidence": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        "force_group": data.draw(st.sampled_from([None, None, 1, 2, 3, 4])),
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
    finish, grammar = steps[-1].finish_reason, sampler.grammar
    assert finish in ("stop", "eos", "length")
    assert grammar.complete or finish == "length"
    tokens = [token for token in said(steps) if token != EOS]
    if grammar.complete:
        check(schema, loop.tokenizer.decode(tokens))
    if finish == "length":
        assert len(tokens) == options["max_tokens"]


@settings(max_examples=40)
@given(schema=schemas, temperature=st.sampled_from([0.0, 1.0]))
@example(schema={"type": "string", "format": "date"}, temperature=1.0)
def test_how_forced_tokens_are_fed_does_not_change_plain_decoding(
    loop: Loop, schema: dict[str, Any], temperature: float
) -> None:
    """At confidence 1 and in verify mode, with the same draws."""
    plain = None
    for options in (
        {"confidence": 1, "forced": "single"},
        {"confidence": 1, "forced": "split"},
        {"confidence": 1, "forced": "merge"},
        {"mode": "verify", "confidence": 0.3},
        {"mode": "verify", "confidence": 0.3, "forced": "single"},
    ):
        backend = loop.backend(cache_slots=2000, context_length=2000)
        sampling = {"temperature": temperature, "seed": 5}
        steps, _, sampler, _ = loop.run(backend, {"json_schema": schema}, sampling, max_tokens=120, **options)
        answer = said(steps), steps[-1].finish_reason, sampler.state()
        plain = plain or answer
        assert answer == plain


def test_a_suppressed_forced_token_is_an_error(loop: Loop) -> None:
    [*_, banned] = loop.tokenizer.encode("the cat")
    message = rf"^the structure needs token {banned} here, which is banned: allow it$"
    with pytest.raises(InputError, match=message):
        loop.run(loop.backend(), {"regex": "[0-9]the cat"}, {"logit_bias": {banned: -100}})


def test_bans_that_leave_nothing_are_an_error(loop: Loop) -> None:
    digits = {token: -100 for digit in "0123456789" for token in loop.tokenizer.encode(digit)}
    message = r"^the structure leaves no token here that is not banned: allow one$"
    with pytest.raises(InputError, match=message):
        loop.run(loop.backend(), {"regex": "[0-9]x"}, {"logit_bias": digits})


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


def test_a_bias_chooses_among_what_the_grammar_allows(loop: Loop) -> None:
    [seven], [z] = loop.tokenizer.encode("7"), loop.tokenizer.encode("z")
    bias = {"logit_bias": {seven: 50.0, z: 900.0}}
    steps, *_ = loop.run(loop.backend(), {"regex": "[0-9]{5}"}, bias)
    assert said(steps) == [seven] * 5


def test_an_error_in_the_middle_takes_back_what_nobody_saw(tokenizer: Tokenizer) -> None:
    [*_, banned] = tokenizer.encode("the cat")
    chat = toy_model(tokenizer).chat(logit_bias={banned: -100})
    with pytest.raises(InputError, match="banned"):
        list(chat.send("hello", regex="[0-9]the cat"))
    assert chat._sampling.answer == chat._sampling.answer[:2]
    list(chat.send("hello", regex="[0-9]x"))
    assert chat.messages[-1].text[-1] == "x"
