"""A queue of asyncio tasks for one model, and answers that wait in it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hamburger_edge.chat.stream import Chunk, Stream, in_thread
from hamburger_edge.errors import BusyError

if TYPE_CHECKING:  # applications without an event loop do not import it
    import asyncio


@dataclass(eq=False)
class _Ticket:
    task: asyncio.Task[object] | None
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]  # done once the task has the turn

    def wake(self) -> None:
        """Give the task its turn, from any thread."""
        self.loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)


class TaskQueue:
    """Tasks wait here for their turn in the order of their arrival, also those of several event loops."""

    def __init__(self) -> None:
        self._tickets: deque[_Ticket] = deque()  # the first one has the turn
        self._door = threading.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn of this task and hold it during the block."""
        ticket = self._enter()
        try:
            await ticket.turn
            yield
        finally:
            self._leave(ticket)

    def _enter(self) -> _Ticket:
        import asyncio

        loop = asyncio.get_running_loop()
        ticket = _Ticket(asyncio.current_task(), loop, loop.create_future())
        with self._door:
            self._drop_closed()
            if self._tickets and self._tickets[0].task is ticket.task:
                raise BusyError(
                    "this task is in the middle of an answer: read it to the end or close it first, or use "
                    "another task"
                )
            self._tickets.append(ticket)
            self._wake_first()
        return ticket

    def _leave(self, ticket: _Ticket) -> None:
        with self._door:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
            self._wake_first()

    def _wake_first(self) -> None:
        self._drop_closed()
        if self._tickets:
            self._tickets[0].wake()

    def _drop_closed(self) -> None:
        """Drop the tickets of event loops that ended in the middle of an answer."""
        for ticket in [ticket for ticket in self._tickets if ticket.loop.is_closed()]:
            self._tickets.remove(ticket)


@asynccontextmanager
async def answering(queue: TaskQueue, begin: Callable[[], Stream]) -> AsyncIterator[Stream]:
    """Wait for the turn, then begin an answer in a thread; close it at the end of the block."""
    async with queue.turn():
        stream = await _begun(begin)
        try:
            yield stream
        finally:
            stream.cancel()
            await in_thread(stream.close)


async def answer_chunks(queue: TaskQueue, begin: Callable[[], Stream]) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of an answer that waits for its turn. Each step runs in a thread."""
    async with answering(queue, begin) as stream, aclosing(aiter(stream)) as chunks:
        async for chunk in chunks:
            yield chunk


async def _begun(begin: Callable[[], Stream]) -> Stream:
    """Begin an answer in a thread. If the task is cancelled meanwhile, close the answer first."""
    import asyncio

    beginning = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            (await beginning).close()
        raise
