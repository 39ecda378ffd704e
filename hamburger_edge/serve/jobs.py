"""`Job`, a request between the event loop and a worker thread, and the queue between them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Literal

from hamburger_edge.chat.stream import Stream
from hamburger_edge.loop.step import FinishReason
from hamburger_edge.serve.answers import Token
from hamburger_edge.serve.fields import RefusedError
from hamburger_edge.serve.requests import AnswerRequest

MOST_WAITING = 512  # half of the connections that the server accepts
Reason = Literal["gone", "time", "shutdown"]


@dataclass(frozen=True)
class Begun:
    """The worker accepted the prompt; all checks of the request have passed."""


@dataclass(frozen=True)
class Piece:
    """The output of one macro step."""

    text: str
    step: dict[str, Any]
    tokens: tuple[Token, ...] | None  # None: no `logprobs` in the request


@dataclass(frozen=True)
class Ended:
    text: str
    finish: FinishReason
    usage: dict[str, Any]
    # and whether the answer is unsure; None: not measured (a correction that was cut is unsure all the same)
    certainty: tuple[float | None, bool] | None


@dataclass(frozen=True)
class Failed:
    refused: RefusedError


Event = Begun | Piece | Ended | Failed

_WHY = {
    "gone": ("the client went away", 499),
    "time": ("the answer took longer than this server allows: ask for fewer tokens, or try later", 504),
    "shutdown": ("the server is shutting down: try again later", 503),
}


class Job:
    """A request. The event loop creates it and reads its events; a worker thread sends them."""

    def __init__(self, request: AnswerRequest, owner: str, client: str) -> None:
        self.request, self.owner, self.client, self.user = request, owner, client, request.user or ""
        self.began = time.monotonic()
        self.reason: Reason | None = None  # reason for cancellation
        self._stream: Stream | None = None
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    async def next(self) -> Event:
        return await self._events.get()

    def tell(self, event: Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def begin(self, stream: Stream) -> None:
        self._stream = stream
        if self.reason is not None:
            stream.cancel()

    def cancel(self, reason: Reason) -> None:
        """Cancel the job, from any thread. Its worker stops after the current step."""
        self.reason = self.reason or reason
        if self._stream is not None:
            self._stream.cancel()

    def end(self) -> None:
        """Send the reason for the cancellation as the last event."""
        assert self.reason is not None
        message, status = _WHY[self.reason]
        self._stream = None
        self.tell(Failed(RefusedError(message, status=status)))


class FairQueue:
    """A queue that rotates between clients, and between the users of a client. Each user's jobs are FIFO.

    Each client has places of its own. When `total` jobs wait, a client has one place at most, so no clients
    can take the places of another.
    """

    def __init__(self, places: int, total: int = MOST_WAITING) -> None:
        self._places = places  # of each client, besides one per idle worker
        self._total = total
        # client -> user -> jobs; the next in rotation comes first
        self._waiting: OrderedDict[str, OrderedDict[str, deque[Job]]] = OrderedDict()
        self._length = 0
        self._idle = 0
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._length

    def put(self, job: Job, retry_after: int) -> None:
        with self._changed:
            if self._closed:
                raise RefusedError(_WHY["shutdown"][0], status=503)
            places = self._places if self._length < self._total else min(self._places, 1)
            users = self._waiting.get(job.client, OrderedDict())
            waiting = sum(map(len, users.values()))
            if waiting >= places + self._idle:
                raise RefusedError(
                    f"{waiting} requests of this client are waiting, and no more may: try again later",
                    status=429,
                    headers={"retry-after": str(retry_after)},
                )
            self._waiting[job.client] = users
            users.setdefault(job.user, deque()).append(job)
            self._length += 1
            self._changed.notify()

    def take(self) -> Job | None:
        """Wait for the next job and return it; None: the queue is closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._idle += 1
                try:
                    self._changed.wait()
                finally:
                    self._idle -= 1
            if not self._waiting:
                return None
            client, users = self._waiting.popitem(last=False)
            user, jobs = users.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                users[user] = jobs  # at the end
            if users:
                self._waiting[client] = users
            self._length -= 1
            return job

    def drop(self, job: Job) -> bool:
        """Remove a waiting job; return whether it was waiting."""
        with self._changed:
            users = self._waiting.get(job.client, OrderedDict())
            jobs = users.get(job.user, deque())
            if job not in jobs:
                return False
            jobs.remove(job)
            if not jobs:
                del users[job.user]
            if not users:
                del self._waiting[job.client]
            self._length -= 1
            return True

    def close(self) -> list[Job]:
        """Close the queue, end idle workers, and return the jobs that were waiting."""
        with self._changed:
            self._closed = True
            left = [job for users in self._waiting.values() for jobs in users.values() for job in jobs]
            self._waiting.clear()
            self._length = 0
            self._changed.notify_all()
            return left
