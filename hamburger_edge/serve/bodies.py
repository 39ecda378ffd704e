"""Read request bodies in bounded memory and time, and close stalled connections."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from hamburger_edge.serve.fields import RefusedError

HEADER_SECONDS = 10.0
# Abort a connection if its client reads fewer than `_TAKEN` bytes in `WRITE_SECONDS`.
WRITE_SECONDS = 30.0
_TAKEN = 16 << 10
# Read and discard up to this many bytes of a body that is too large. A client that is still sending would
# not receive the error if the server closed the connection.
DRAINED = 64 << 20


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    length = request.headers.get("content-length", "")
    expected = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0
    large = RefusedError(f"the body is larger than the {limit} bytes that are taken", status=413)
    if expected > DRAINED or (expected > limit and "expect" in request.headers):  # nothing sent yet
        large.headers = {"connection": "close"}
        raise large
    body, received = bytearray(), 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                received += len(part)
                if received <= limit:
                    body += part
                elif received > DRAINED:
                    break
    except TimeoutError as error:
        if received <= limit:
            raise RefusedError(f"the body took longer than {seconds:g} s", status=408) from error
    except ClientDisconnect as error:
        raise RefusedError("the client went away", status=499) from error
    if received > limit:
        raise large
    if kind != "application/json":  # other sites cannot send this type without preflight
        raise RefusedError("the body must come as  Content-Type: application/json", status=415)
    return bytes(body)


class Connection(H11Protocol):
    """uvicorn's HTTP protocol with time limits for the request head and for reading the response.

    A client that closes its sending side before the body is complete receives an error 400.
    """

    _due: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # pause as soon as any byte waits in the buffer
        self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._watch(None)
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._watch(None)
        super().connection_lost(exc)

    def eof_received(self) -> None:
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            self.cycle.disconnected = True  # the application's response is dropped
            self.cycle.message_event.set()
            self.send_400_response("the body ended before it was complete")

    def _watch(self, waiting: int | None) -> None:
        """Restart the timer of unread bytes. `waiting`: bytes in the buffer; None: stop the timer."""
        if self._unread is not None:
            self._unread.cancel()
        later = self.loop.call_later
        self._unread = None if waiting is None else later(WRITE_SECONDS, self._untaken, waiting)

    def _untaken(self, before: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting > before - _TAKEN:
            self.transport.abort()
        else:
            self._watch(waiting)

    def _wait(self) -> None:
        """Start the timer for the next request head. Stop it while a request is in progress."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._due is None and not (self.cycle is not None and self.timeout_keep_alive_task is not None):
            self._due = self.loop.call_later(HEADER_SECONDS, self._late)

    def _late(self) -> None:
        self._due = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _forget(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
