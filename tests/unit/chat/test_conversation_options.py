"""A chat whose options change or are refused, and answers that fail in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_models import tokens_of, toy_model
from scripted_backend import EOS

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Settings
from hamburger_edge.model import Model

UNKNOWN = 10**6  # a token of no vocabulary


def liking(model: Model, likes: dict[int, float]) -> None:
    """The same scores everywhere: these, and little for every other token."""
    row = np.full(model.info.vocab_size, 0.1, dtype=np.float32)
    for token, score in {**likes, EOS: -9.0}.items():
        row[token] = score
    model.backend.scores = lambda text, salt=0: row.copy()


@pytest.mark.parametrize("bias", [-100, 1.0])
def test_refused_options_leave_the_chat_as_it_was(model: Model, tmp_path: Path, bias: float) -> None:
    chat = model.chat(max_tokens=6, temperature=1.0, seed=3, ignore_eos=True)
    list(chat.send("hello"))
    before = (chat.settings, chat._sampling.state(), chat.groups, chat.messages)
    with pytest.raises(InputError, match="not in the vocabulary"):
        chat.configure(logit_bias={UNKNOWN: bias}, seed=4)
    assert (chat.settings, chat._sampling.state(), chat.groups, chat.messages) == before
    chat.save(tmp_path / "s")
    assert model.resume(tmp_path / "s").settings == chat.settings
    assert list(chat.continue_answer())


def test_a_refused_reset_loses_nothing(model: Model) -> None:
    chat = model.chat(max_tokens=6)
    list(chat.send("hello"))
    before = (chat.groups, chat.messages, chat.stats)
    chat.settings = Settings.of({"logit_bias": {UNKNOWN: -100}})
    with pytest.raises(InputError, match="not in the vocabulary"):
        chat.reset()
    assert (chat.groups, chat.messages, chat.stats) == before


def test_a_new_seed_does_not_forget_what_the_answer_said(model: Model) -> None:
    liking(model, dict.fromkeys(range(50, 60), 2.0))
    chat = model.chat(presence_penalty=9.0, max_tokens=4)
    said = [token for chunk in chat.send("x") for token in chunk.tokens]
    chat.configure(seed=5)
    assert (chat._sampling.seed, chat._sampling.state()["draws"]) == (5, 0)
    said += [token for chunk in chat.continue_answer() for token in chunk.tokens]
    assert said == [*range(50, 58)]  # each of them once


def test_a_new_penalty_knows_the_prompt_of_an_answer_under_way(model: Model, tokenizer: Tokenizer) -> None:
    (asked,) = tokenizer.encode("z")
    liking(model, {asked: 10.0, 50: 5.0, 51: 4.0})
    chat = model.chat(logit_bias={asked: -100}, max_tokens=1)
    assert [chunk.tokens for chunk in chat.send("z")] == [(50,)]
    chat.configure(logit_bias={}, repetition_penalty=3.0)  # 10 / 3, 5 / 3 and 4
    assert [chunk.tokens for chunk in chat.continue_answer()] == [(51,)]


def test_a_tokenizer_of_another_vocabulary_is_an_input_error(tokenizer: Tokenizer) -> None:
    model = toy_model(tokenizer, {"vocab_size": 20})
    for options in ({}, {"repetition_penalty": 1.5}):
        with pytest.raises(InputError, match="a token must be"):
            model.chat(**options).send("hello")


def interrupted(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """The same function; Ctrl-C is heard at the end of that call of it."""
    calls = 0

    def counted(*words: Any) -> Any:
        nonlocal calls
        calls += 1
        result = function(*words)
        if calls == at:
            raise KeyboardInterrupt
        return result

    return counted


@pytest.mark.parametrize("part", ["micro", "macro", "choose"])
@pytest.mark.parametrize("mode", ["merge", "verify"])
def test_an_answer_interrupted_inside_a_group_proceeds_as_if_it_had_not_been(
    mode: str, part: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody was shown was never said: not drawn, not penalised, not in the cache."""
    options = {"confidence": 0.3, "temperature": 1.0, "seed": 3, "frequency_penalty": 0.5, "mode": mode}
    shape: dict[str, Any] = {"eos_rate": 0.0}
    straight = toy_model(tokenizer, **shape).chat(max_tokens=30, **options)  # type: ignore[arg-type]
    whole = [token for chunk in straight.send("hello") for token in chunk.tokens]
    prompt = len(tokens_of(straight.groups)) - len(whole)
    tried = 0
    for call in range(1, 100):
        model = toy_model(tokenizer, **shape)
        chat = model.chat(max_tokens=30, **options)  # type: ignore[arg-type]
        owner = Sampler if part == "choose" else model.backend
        said: list[int] = []
        with monkeypatch.context() as patched:
            patched.setattr(owner, part, interrupted(getattr(owner, part), call))
            try:
                for chunk in chat.send("hello"):
                    said += chunk.tokens
                break  # there are fewer calls
            except KeyboardInterrupt:
                pass
        if not said:
            assert chat.groups == []
            continue
        tried += 1
        assert tokens_of(chat.groups)[prompt:] == chat._sampling.answer == said
        said += [token for chunk in chat.continue_answer(max_tokens=30 - len(said)) for token in chunk.tokens]
        assert said == whole, call
    assert tried > 5
