"""The program that listens: started, told to stop, stopped in time."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import uvicorn

from hamburger_edge.errors import InputError
from hamburger_edge.serve.application import Log, application
from hamburger_edge.serve.bodies import Connection
from hamburger_edge.serve.browser import NOTHING, InBrowser
from hamburger_edge.serve.gate import Access
from hamburger_edge.serve.pool import Pool
from hamburger_edge.serve.requests import Limits

MOST_CONNECTIONS = 1024
_LONGEST_HEAD = 16 << 10
_AFTER = 5  # seconds for what was cancelled to end


class Server(uvicorn.Server):
    """Calls `ready` when it may be asked. When told to stop it takes no more, gives answers `grace` seconds,
    and cancels what is left then."""

    def __init__(
        self,
        pool: Pool,
        access: Access,
        limits: Limits,
        log: Log,
        *,
        grace: float = 10,
        in_browser: InBrowser = NOTHING,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.pool, self.grace, self.ready = pool, grace, ready
        config = uvicorn.Config(
            application(pool, access, limits, log, in_browser),
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
    """Before the models are loaded: a port that is taken shows at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    try:
        if os.name == "posix":  # elsewhere it would let two programs have one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}, port {port} ({reason}): choose another") from error
    return listening
