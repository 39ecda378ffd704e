"""`close` from a signal's handler, which runs in the thread that it interrupts."""

from __future__ import annotations

from typing import Any

import pytest
from chat_models import toy_model

from hamburger_edge.errors import InputError
from hamburger_edge.tokenizer import Tokenizer


@pytest.mark.parametrize("closed", ["model", "stream"])
def test_a_signals_handler_may_close_in_the_middle_of_a_step(closed: str, tokenizer: Tokenizer) -> None:
    """It runs in the thread that it interrupts: the step ends, then the model is free, or closed."""
    model = toy_model(tokenizer, eos_rate=0.0)
    macro, calls = model.backend.macro, []

    def interrupted(*words: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            (model if closed == "model" else stream).close()
        return macro(*words)

    model.backend.macro = interrupted  # type: ignore[method-assign]
    stream = model.stream("Tell", max_tokens=50, confidence=1)
    records = list(stream)
    assert len(calls) == 3
    assert len(records) == 3
    assert stream.finish_reason == records[-1].finish_reason == "cancelled"
    if closed == "model":
        with pytest.raises(InputError, match="closed"):
            model.generate("Tell")
    else:
        assert model.generate("Tell", max_tokens=4).tokens


def test_closing_in_the_middle_of_closing(tokenizer: Tokenizer) -> None:
    model = toy_model(tokenizer)
    close, calls = model.backend.close, []

    def again() -> None:
        calls.append(1)
        model.close()
        close()

    model.backend.close = again  # type: ignore[method-assign]
    model.close()
    assert calls == [1]


@pytest.mark.parametrize("fails", [False, True])
def test_closing_while_an_answer_begins(fails: bool, tokenizer: Tokenizer) -> None:
    """A signal's handler, while the prompt is looked at."""
    model = toy_model(tokenizer)
    run = model.engine.run

    def interrupted(*words: Any, **options: Any) -> Any:
        model.close()
        if fails:
            raise InputError("too long")
        return run(*words, **options)

    model.engine.run = interrupted  # type: ignore[method-assign]
    if fails:
        with pytest.raises(InputError, match="too long"):
            model.stream("Tell")
    else:
        stream = model.stream("Tell")
        assert list(stream) == []
        assert stream.finish_reason == "cancelled"
    with pytest.raises(InputError, match="closed"):
        model.stream("Tell")
    model.close()
