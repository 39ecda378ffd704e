"""The certainty of an answer, from the log-probabilities of its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.toys.chat_models import toy_model

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.loop.certainty import FLOOR, Certainty, is_loop, negative_log_likelihood
from hamburger_edge.model import Model

FIT = Certainty(offset=2.0, slope=1.5)
SHORT = {"max_tokens": 200}


def measured(tokenizer: Tokenizer, fit: Certainty | None = FIT, **script: Any) -> Model:
    return toy_model(tokenizer, {"cache_slots": 512, "context_length": 512, "certainty": fit}, **script)


@pytest.fixture
def model(tokenizer: Tokenizer) -> Iterator[Model]:
    with measured(tokenizer, eos_rate=0.1, agreement=0.8) as model:
        yield model


def test_certainty_is_logistic_in_the_logarithm_of_the_likelihood() -> None:
    nll = negative_log_likelihood([-1.0, -3.0, 0.0, 1e-9])
    assert nll == pytest.approx(4)
    assert FIT.of(nll) == pytest.approx(1 / (1 + math.exp(1.5 * math.log(4 + FLOOR) - 2)))
    assert FIT.of(0) > FIT.of(0.1) > FIT.of(1)
    assert negative_log_likelihood([1e-6]) == 0
    assert negative_log_likelihood([-math.inf]) == 20
    assert Certainty(1000, 0).of(nll) == 1
    assert Certainty(-1000, 0).of(nll) == pytest.approx(0)


@pytest.mark.parametrize(("offset", "slope"), [(math.nan, 1), (math.inf, 1), (0, -1), (0, math.nan)])
def test_coefficients_must_be_finite_and_a_likelier_answer_more_certain(offset: float, slope: float) -> None:
    with pytest.raises(ConfigError, match=r"certainty\.(offset|slope) must be from"):
        Certainty(offset, slope)


def test_only_a_long_answer_that_repeats_itself_at_its_end_is_a_loop() -> None:
    assert is_loop([*range(50), *[1, 2, 3] * 11])
    assert not is_loop([1, 2, 3] * 10)
    assert not is_loop([*[1, 2, 3] * 11, *range(32)])


@pytest.mark.parametrize("mode", ["plain", "verify"])
def test_certainty_is_from_the_probabilities_of_the_base(model: Model, mode: Any) -> None:
    result = model.generate("hello", mode=mode, top_probabilities=0, **SHORT)
    assert result.finish_reason == "eos"
    nll = -float(np.log(result.probabilities).sum())
    assert result.certainty == pytest.approx(FIT.of(nll), abs=1e-6)


@pytest.mark.parametrize("text", ["hello", "a second prompt", "Tell"])
def test_certainty_is_equal_in_plain_and_verify_mode(model: Model, text: str) -> None:
    plain, verify = (model.generate(text, mode=mode, **SHORT) for mode in ("plain", "verify"))
    assert (plain.tokens, plain.certainty) == (verify.tokens, verify.certainty)


@pytest.mark.parametrize("mode", ["hybrid", "merge"])
def test_merged_tokens_count_with_the_chance_of_their_draft(tokenizer: Tokenizer, mode: Any) -> None:
    with measured(tokenizer, eos_rate=0.1, p_stop=0.0) as model:
        stream = model.stream("hello", mode=mode, **SHORT)
        result = stream.result()
        assert any(len(group) > 1 for group in result.groups)
        logprobs = stream._sampler.logprobs
        assert logprobs is not None
        assert len(logprobs) == len(result.tokens)
        assert 0.0 in logprobs  # 1 - p_stop is 1


def test_temperature_penalties_and_bias_do_not_change_the_scores(model: Model) -> None:
    plain = model.stream("hello", mode="plain", max_tokens=1)
    token = plain.result().tokens[0]
    changed = model.stream(
        "hello", mode="plain", max_tokens=1, temperature=9.0, seed=1, logit_bias={token: 99.0}
    )
    assert changed.result().tokens == [token]
    assert changed.nll == plain.nll


def test_forced_tokens_of_a_grammar_are_certain(model: Model) -> None:
    stream = model.stream("hello", regex="abcdef", **SHORT)
    result = stream.result()
    assert result.text == "abcdef"
    assert stream.nll == 0


def test_certainty_is_none_without_a_calibration(tokenizer: Tokenizer) -> None:
    with measured(tokenizer, None) as model:
        result = model.generate("hello")
        assert (result.certainty, result.unsure) == (None, False)
        for ask in (model.stream, model.generate, lambda text, **options: model.chat(**options)):
            with pytest.raises(InputError, match=r"min_certainty .* needs a model"):
                ask("hello", min_certainty=0.5)
        assert model.generate("hello").tokens == result.tokens  # the model is free


def test_cut_answer_has_certainty_zero(tokenizer: Tokenizer) -> None:
    sure = Certainty(1000, 0)
    with measured(tokenizer, sure, eos_rate=0.0) as model:
        cut = model.generate("hello", max_tokens=5, min_certainty=0.1)
        assert (cut.finish_reason, cut.certainty, cut.unsure) == ("length", 0.0, True)
        full = model.generate("hello", max_tokens=2000)
        assert (full.finish_reason, full.certainty) == ("context", 0.0)
        cancelled = model.stream("hello")
        next(cancelled)
        cancelled.close()
        assert (cancelled.finish_reason, cancelled.certainty) == ("cancelled", 0.0)


def test_loop_has_certainty_zero(tokenizer: Tokenizer) -> None:
    with measured(tokenizer, Certainty(1000, 0), template="plain", p_stop=0.0) as model:
        tokens = [*tokenizer.encode("ab") * 40, model.info.eos_ids[0]]
        model.backend.say(tokens, prompt=2)  # type: ignore[attr-defined]
        result = model.generate("hi", raw=True)
        assert (result.finish_reason, result.certainty) == ("eos", 0.0)


def test_answer_below_min_certainty_is_unsure_and_keeps_its_text(model: Model) -> None:
    plain = model.generate("hello", **SHORT)
    assert plain.certainty is not None
    assert not plain.unsure
    for least, unsure in ((plain.certainty - 0.01, False), (plain.certainty + 0.01, True)):
        result = model.generate("hello", min_certainty=least, **SHORT)
        assert (result.text, result.certainty, result.unsure) == (plain.text, plain.certainty, unsure)
        *before, last = model.stream("hello", min_certainty=least, **SHORT)
        assert (last.certainty, last.unsure) == (plain.certainty, unsure)
        assert all((chunk.certainty, chunk.unsure) == (None, False) for chunk in before)


@pytest.fixture(params=[Certainty(0, 0), None], ids=["measured", "not-measured"])
def editor(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Iterator[Model]:
    """A model that edits its prompt; its whole answers have certainty 0.5, or none."""
    shape = {"cache_slots": 512, "context_length": 512, "edits_prompt": True, "certainty": request.param}
    with toy_model(tokenizer, shape, template="plain", eos_rate=0.0) as model:
        yield model


def say(model: Model, text: str, *, prompt: str) -> None:
    """Let the backend answer with this text and an end token."""
    scripted: Any = model.backend
    tokens = [*model.tokenizer.encode(text), model.info.eos_ids[0]]
    scripted.say(tokens, prompt=len(model.inference.prompt_groups(prompt)))


def test_cut_correction_is_the_text_of_the_prompt(editor: Model) -> None:
    say(editor, "the hello", prompt="teh hello")
    stream = editor.stream("teh hello", max_tokens=2)
    generated = "".join(chunk.text for chunk in stream)
    assert generated != "teh hello"
    assert (stream.text, stream.finish_reason, stream.unsure) == ("teh hello", "length", True)
    result = editor.generate("teh hello", max_tokens=2)
    assert (result.text, result.unsure, len(result.tokens)) == ("teh hello", True, 2)


def test_whole_correction_is_as_generated(editor: Model) -> None:
    say(editor, "the hello", prompt="teh hello")
    result = editor.generate("teh hello")
    assert (result.text, result.finish_reason, result.unsure) == ("the hello", "eos", False)


def test_correction_that_repeats_itself_is_the_text_of_the_prompt(editor: Model) -> None:
    text = "haha" * 20
    say(editor, text, prompt=text + " ")
    result = editor.generate(text + " ", max_tokens=200)
    assert (result.text, result.finish_reason, result.unsure) == (text + " ", "eos", True)


@pytest.mark.parametrize("editor", [Certainty(0, 0)], indirect=True)
def test_correction_below_min_certainty_is_the_text_of_the_prompt(editor: Model) -> None:
    say(editor, "the hello", prompt="teh hello")
    sure, unsure = (editor.generate("teh hello", min_certainty=least) for least in (0.4, 0.6))
    assert (sure.text, sure.unsure) == ("the hello", False)
    assert (unsure.text, unsure.unsure, unsure.tokens) == ("teh hello", True, sure.tokens)


def test_conversation_keeps_a_cut_correction_which_may_continue(editor: Model) -> None:
    say(editor, "the hello", prompt="teh hello")
    chat = editor.chat()
    result = chat.send("teh hello", max_tokens=2).result()
    assert result.unsure
    assert chat.messages[-1].text == result.text != "teh hello"
    chat.continue_answer().result()
    assert chat.messages[-1].text == "the hello"


@pytest.mark.parametrize("least", [-0.1, 1.1, "high", math.nan])
def test_min_certainty_must_be_0_to_1(model: Model, least: Any) -> None:
    with pytest.raises(InputError, match="min_certainty must be from 0 to 1"):
        model.generate("hello", min_certainty=least)


def test_continued_answer_has_the_certainty_of_the_whole(model: Model, tmp_path: Path) -> None:
    whole = model.chat(mode="plain", min_certainty=1.0).send("hello", **SHORT).result()
    for saved in (False, True):
        chat = model.chat(mode="plain", min_certainty=1.0)
        assert chat.send("hello", max_tokens=3).result().certainty == 0
        if saved:
            chat.save(tmp_path / "session")
            chat = model.resume(tmp_path / "session")
        result = chat.continue_answer(**SHORT).result()
        assert (result.finish_reason, result.certainty, result.unsure) == ("eos", whole.certainty, True)


def test_session_without_log_probabilities_leaves_a_continued_answer_unsure(
    model: Model, tmp_path: Path
) -> None:
    """Sessions of a model that was measured later have none."""
    chat = model.chat(mode="plain")
    chat.send("hello", max_tokens=3).result()
    state = chat._sampling.state()
    del state["logprobs"]
    chat._sampling.restore(state)
    chat.configure(min_certainty=0.0)
    result = chat.continue_answer(**SHORT).result()
    assert (result.certainty, result.unsure) == (None, True)
    assert chat.send("more", **SHORT).result().certainty is not None
