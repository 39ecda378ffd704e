"""Messages as a list, whole answers, and answers in an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hamburger_edge.errors import InputError
from hamburger_edge.model import Model

HELLO = {"role": "user", "content": "hello"}
HI = {"role": "assistant", "content": "hi there"}
BRIEF = {"role": "system", "content": "be brief"}


def test_messages_are_the_prompt_that_they_make(model: Model) -> None:
    alone = model.generate("hello", max_tokens=9, reuse_prefix=False)
    assert model.generate(messages=[HELLO], max_tokens=9, reuse_prefix=False).tokens == alone.tokens
    brief = model.generate("hello", system="be brief", max_tokens=9, reuse_prefix=False)
    assert model.generate(messages=[BRIEF, HELLO], max_tokens=9, reuse_prefix=False).tokens == brief.tokens
    assert model.generate(messages=[HELLO], system="be brief", max_tokens=9).tokens == brief.tokens


def test_a_conversation_in_messages_is_what_a_chat_reads(model: Model) -> None:
    again = {"role": "user", "content": "again"}
    asked = model.generate(messages=[BRIEF, HELLO, HI, again], max_tokens=12, reuse_prefix=False)
    chat = model.chat(messages=[BRIEF, HELLO, HI], max_tokens=12)
    assert [message.text for message in chat.messages] == ["hello", "hi there"]
    assert chat.send("again").result().tokens == asked.tokens
    assert [message.role for message in chat.messages] == ["user", "assistant"] * 2
    chat.reset()
    assert [message.text for message in chat.messages] == ["hello", "hi there"]
    assert chat.send("again").result().tokens == asked.tokens


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ("hello", "messages must be a list"),
        ([HELLO, HI], "the last message must be of the user"),
        ([HI], r"messages\[0\]: a message of the user must come before"),
        ([HELLO, HELLO], r"messages\[1\]: a message of the assistant must come before"),
        ([HELLO, BRIEF], r"messages\[1\]: the system's message must be the first"),
        ([{"role": "user", "content": ""}], r"messages\[0\] is empty"),
        ([HELLO | {"name": "x"}], r"messages\[0\] must have a role and a content"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content"),
    ],
)
def test_what_messages_must_look_like(model: Model, messages: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        model.stream(messages=messages)


def test_one_thing_is_asked(model: Model) -> None:
    for asked in ({}, {"prompt": "hello", "messages": [HELLO]}, {"messages": [HELLO], "raw": True}):
        with pytest.raises(InputError, match="give"):
            model.stream(**asked)
    with pytest.raises(InputError, match="leave system out"):
        model.stream(messages=[BRIEF, HELLO], system="be kind")
    with pytest.raises(InputError, match="give it to send"):
        model.chat(messages=[HELLO])


def test_a_stream_has_a_result(model: Model) -> None:
    whole = model.generate("hello", max_tokens=20)
    stream = model.stream("hello", max_tokens=20)
    next(stream)
    found = stream.result()
    assert (found.text, found.groups, found.tokens) == (whole.text, whole.groups, whole.tokens)
    assert found.finish_reason == whole.finish_reason
    assert stream.result() == found


def test_answers_come_in_an_event_loop(model: Model) -> None:
    async def read() -> tuple[str, list[int], str]:
        text = "".join([chunk.text async for chunk in model.astream("hello", max_tokens=20)])
        answer = await model.agenerate(messages=[HELLO], max_tokens=20)
        chat = model.chat(max_tokens=20)
        said = "".join([chunk.text async for chunk in chat.send("hello")])
        assert chat.messages[-1].text == said
        return text, answer.tokens, said

    whole = model.generate("hello", max_tokens=20)
    assert asyncio.run(read()) == (whole.text, whole.tokens, whole.text)


def test_cancelling_the_task_cancels_the_answer(model: Model) -> None:
    """And frees the model, whichever of the ways to wait was cancelled."""

    async def give_up() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in model.astream("hello", max_tokens=5000, ignore_eos=True):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.create_task(model.agenerate("hello", max_tokens=5000, ignore_eos=True))
        while model._turns.answer is None:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert model.generate("hello", max_tokens=3).tokens  # nobody holds the model
