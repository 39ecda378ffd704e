"""Messages as a list, whole answers, and answers in an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hamburger_edge.errors import BusyError, InputError
from hamburger_edge.model import Model

HELLO = {"role": "user", "content": "hello"}
HI = {"role": "assistant", "content": "hi there"}
BRIEF = {"role": "system", "content": "be brief"}


def test_a_conversation_in_messages_is_what_a_chat_reads(model: Model) -> None:
    brief = model.generate("hello", system="be brief", max_tokens=9)
    for messages, system in (([BRIEF, HELLO], None), ([HELLO], "be brief")):
        assert model.generate(messages=messages, system=system, max_tokens=9).tokens == brief.tokens
    again = {"role": "user", "content": "again"}
    asked = model.generate(messages=[BRIEF, HELLO, HI, again], max_tokens=12)
    chat = model.chat(messages=[BRIEF, HELLO, HI], max_tokens=12)
    for _ in range(2):
        assert [message.text for message in chat.messages] == ["hello", "hi there"]
        assert chat.send("again").result().tokens == asked.tokens
        assert [message.role for message in chat.messages] == ["user", "assistant"] * 2
        chat.reset()


@pytest.mark.parametrize(
    ("messages", "others", "reason"),
    [
        ("hello", {}, "messages must be a list"),
        ([HELLO, HI], {}, "last message must be of the user"),
        ([HI], {}, r"messages\[0\]: a message of the user"),
        ([HELLO, HELLO], {}, r"messages\[1\]: a message of the assistant"),
        ([HELLO, BRIEF], {}, r"messages\[1\]: the system's message"),
        ([{"role": "user", "content": ""}], {}, r"messages\[0\] is empty"),
        ([HELLO | {"name": "x"}], {}, r"messages\[0\] must have a role and a content"),
        ([{"role": "user", "content": 3}], {}, r"messages\[0\].content"),
        ([HELLO], {"prompt": "hello"}, "give either"),
        ([HELLO], {"raw": True}, "give either"),
        ([BRIEF, HELLO], {"system": "be kind"}, "leave system out"),
    ],
)
def test_what_messages_must_look_like(
    model: Model, messages: Any, others: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        model.stream(messages=messages, **others)


def test_messages_given_as_the_prompt_are_refused_by_name(model: Model) -> None:
    with pytest.raises(InputError, match="pass it as messages="):
        model.generate([HELLO])  # type: ignore[arg-type]


def test_a_chat_begins_behind_an_answer(model: Model) -> None:
    with pytest.raises(InputError, match="give it to send"):
        model.chat(messages=[HELLO])


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


def test_tasks_wait_for_their_turn_in_order(model: Model) -> None:
    """Two answers at once raised BusyError."""
    texts = ["hello", "tell me more", "and why", "hello"]
    expected = [model.generate(text, max_tokens=20).text for text in texts]
    turns: list[int] = []

    async def read(number: int) -> str:
        if number % 2:
            return (await model.agenerate(texts[number], max_tokens=20)).text
        text = ""
        async for chunk in model.astream(texts[number], max_tokens=20):
            turns.append(number)
            text += chunk.text
        return text

    async def read_all() -> list[str]:
        return await asyncio.gather(*map(read, range(len(texts))))

    assert asyncio.run(read_all()) == expected
    assert turns == sorted(turns)
    assert len(set(turns)) == 2


def test_messages_of_one_conversation_wait_for_each_other(model: Model) -> None:
    chat, alone = model.chat(max_tokens=20), model.chat(max_tokens=20)

    async def read(text: str) -> str:
        return "".join([chunk.text async for chunk in chat.asend(text)])

    async def read_all() -> list[str]:
        return await asyncio.gather(read("hello"), read("more"))

    answers = asyncio.run(read_all())
    assert answers == [alone.send(text).result().text for text in ("hello", "more")]
    assert chat.messages == alone.messages


def test_cancelled_task_leaves_the_queue(model: Model) -> None:
    """A task in the middle of its own answer gets an error, because it would wait for itself."""

    async def ask() -> str:
        first = model.astream("hello", max_tokens=5000, ignore_eos=True)
        await anext(first)
        with pytest.raises(BusyError, match="this task"):
            await model.agenerate("hello", max_tokens=3)
        waiting = [asyncio.create_task(model.agenerate("hello", max_tokens=3)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await first.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        return (await waiting[1]).text

    assert asyncio.run(ask()) == model.generate("hello", max_tokens=3).text


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
        while model.inference.turns.answer is None:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert model.generate("hello", max_tokens=3).tokens  # nobody holds the model
