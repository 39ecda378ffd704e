"""The HTTP server: settings, start and graceful shutdown."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import uvicorn

from hamburger_edge.errors import InputError
from hamburger_edge.serve.application import RequestLog, application
from hamburger_edge.serve.bodies import Connection
from hamburger_edge.serve.browser import NOTHING, InBrowser
from hamburger_edge.serve.gate import Access
from hamburger_edge.serve.pool import Pool
from hamburger_edge.serve.requests import RequestLimits
from hamburger_edge.serve.suggestions import NO_SUGGESTIONS, Suggestions

MOST_CONNECTIONS = 1024
_LONGEST_HEAD = 16 << 10
_AFTER = 5  # seconds for cancelled answers to end


class Server(uvicorn.Server):
    """A uvicorn server that calls `ready` when it accepts requests.

    At shutdown it accepts no more requests. After `grace` seconds it cancels the unfinished answers.
    """

    def __init__(
        self,
        pool: Pool,
        access: Access,
        limits: RequestLimits,
        log: RequestLog,
        *,
        grace: float = 10,
        in_browser: InBrowser = NOTHING,
        suggestions: Suggestions = NO_SUGGESTIONS,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.pool, self.grace, self.ready = pool, grace, ready
        config = uvicorn.Config(
            application(pool, access, limits, log, in_browser, suggestions),
            http=Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(grace) + _AFTER,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        late = asyncio.get_running_loop().call_later(self.grace, self.pool.cancel_all, "shutdown")
        await super().shutdown(sockets)
        late.cancel()


def listen(host: str, port: int) -> socket.socket:
    """Bind the socket. Called before the models load, so that a used port fails early."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    try:
        if os.name == "posix":  # on Windows it would let two programs share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}, port {port} ({reason}): choose another") from error
    return listening
