"""`close` from a signal's handler, which runs in the thread that it interrupts, and Ctrl-C anywhere."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from helpers.toys.chat_models import toy_model

import hamburger_edge.chat.stream
import hamburger_edge.loop.turns
import hamburger_edge.model
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ClosedError, InputError
from hamburger_edge.model import Model


@pytest.mark.parametrize("closed", ["model", "stream"])
def test_a_signals_handler_may_close_in_the_middle_of_a_step(closed: str, tokenizer: Tokenizer) -> None:
    """It runs in the thread that it interrupts: the step ends, then the model is free, or closed."""
    model = toy_model(tokenizer, eos_rate=0.0)
    calls = []

    def close_in_the_third(_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            (model if closed == "model" else stream).close()

    model.backend.before_macro = close_in_the_third
    stream = model.stream("Tell", max_tokens=50, confidence=1)
    chunks = list(stream)
    assert len(calls) == len(chunks) == 3
    assert stream.finish_reason == chunks[-1].finish_reason == "cancelled"
    if closed == "model":
        with pytest.raises(ClosedError, match="closed"):
            model.generate("Tell")
    else:
        assert model.generate("Tell", max_tokens=4).tokens


def test_the_last_step_of_a_closed_answer_has_all_of_its_text(tokenizer: Tokenizer) -> None:
    """A regression: text that could begin a stop string was lost."""
    options: dict[str, Any] = {"mode": "merge", "confidence": 0.0}
    with toy_model(tokenizer, eos_rate=0.0) as model:
        [group] = model.generate("Tell", max_tokens=model.info.max_group_tokens, **options).groups
        whole = model.decode(group)
    model = toy_model(tokenizer, eos_rate=0.0)
    micro = model.backend.micro

    def interrupted(*words: Any) -> Any:
        stream.close()
        return micro(*words)

    model.backend.micro = interrupted  # type: ignore[method-assign]
    stream = model.stream("Tell", max_tokens=50, stop=whole[-1] + "\0", **options)
    assert [(chunk.text, chunk.finish_reason) for chunk in stream] == [(whole, "cancelled")]


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
    run = model.inference.engine.run

    def interrupted(*words: Any, **options: Any) -> Any:
        model.close()
        if fails:
            raise InputError("too long")
        return run(*words, **options)

    model.inference.engine.run = interrupted  # type: ignore[method-assign]
    if fails:
        with pytest.raises(InputError, match="too long"):
            model.stream("Tell")
    else:
        stream = model.stream("Tell")
        assert list(stream) == []
        assert stream.finish_reason == "cancelled"
    with pytest.raises(ClosedError, match="closed"):
        model.stream("Tell")
    model.close()


HERE = (
    hamburger_edge.model.__file__,
    hamburger_edge.loop.turns.__file__,
    hamburger_edge.chat.stream.__file__,
)


def interrupted(work: Callable[[], None], at: int) -> bool:
    """Ctrl-C at the n-th place of these files where Python listens for it: as a function begins, and as
    one written in C returns. False: there are fewer places."""
    places = 0

    def listen(frame: FrameType, event: str, _: object) -> None:
        nonlocal places
        code = frame.f_code
        if code.co_filename not in HERE or code.co_name == "__del__":  # there it would only be printed
            return
        if event == "c_return" or (event == "call" and not code.co_flags & inspect.CO_GENERATOR):
            places += 1
            if places == at:
                raise KeyboardInterrupt

    sys.setprofile(listen)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def answer(model: Model) -> None:
    model.generate("Tell", max_tokens=2)
    chat = model.chat(max_tokens=2)
    list(chat.send("Tell"))
    chat.configure(top_k=5)


def break_off(model: Model) -> None:
    stream = model.stream("Tell", max_tokens=2)
    next(stream)
    model.close()


@pytest.mark.parametrize("work", [answer, break_off])
def test_ctrl_c_anywhere_leaves_a_model_that_is_free_and_can_be_closed(
    work: Callable[[Model], None], tokenizer: Tokenizer
) -> None:
    model, place = toy_model(tokenizer), 1
    while interrupted(partial(work, model), place):
        if not model.inference.turns.closing:
            assert model.generate("Tell", max_tokens=2).tokens, place
        model.close()
        assert model.backend.closed, place
        model, place = toy_model(tokenizer), place + 1
    assert place > 30


def test_a_second_ctrl_c_inside_the_handler_of_the_first(tokenizer: Tokenizer) -> None:
    """Before each line of the handler's work another one comes: it must not wait for the first."""
    stream = toy_model(tokenizer).stream("Tell")
    depth = 0

    def again(*_: object) -> Any:
        nonlocal depth
        if depth < 3:
            depth += 1
            stream.cancel()
            depth -= 1
        return again

    def handle() -> None:
        sys.settrace(again)
        stream.cancel()
        sys.settrace(None)

    thread = threading.Thread(target=handle, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert [chunk.finish_reason for chunk in stream] == ["cancelled"]
