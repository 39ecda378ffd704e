"""The browser example on a test server that records requests and can make bundles unreachable."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.browsing import Browser
from helpers.places import ROOT, script


def program() -> Any:
    return script(ROOT / "examples" / "browser" / "serve.py")


def ready(browser: Browser, seconds: float = 60) -> None:
    browser.until(lambda: browser.find("#state").text.startswith("Ready"), seconds)


def notice(browser: Browser) -> str:
    """Return the page's notice as soon as it has one."""
    return str(browser.until(lambda: browser.find("#notice").text))


class Served:
    def __init__(self, server: Any) -> None:
        self.server = server
        self.url: str = server.url
        self.asked: list[str] = []
        self.is_reachable = True  # False: the server drops every request under /bundles/
        self.cuts: dict[str, int] = {}  # path -> bytes after which its next response breaks off
        self.ranges: dict[str, str] = {}  # path -> range of the last request for it that had one

    def asked_of(self, bundle: str) -> set[str]:
        """Return the requested file names since the last call."""
        start = f"/bundles/{bundle}/"
        found = {path.removeprefix(start) for path in self.asked if path.startswith(start)}
        self.asked.clear()
        return found


class Cut(io.BytesIO):
    """A connection that breaks after some bytes."""

    def __init__(self, connection: Any, left: int) -> None:
        super().__init__()
        self.connection, self.left = connection, left

    def write(self, content: Any) -> int:
        self.connection.write(content[: self.left])
        self.left -= len(content)
        if self.left < 0:
            raise ConnectionAbortedError
        return len(content)


@contextmanager
def example(bundles: dict[str, Path]) -> Iterator[Served]:
    module = program()
    server = module.Server(bundles)
    served = Served(server)

    class Handler(module.Handler):  # type: ignore[misc, name-defined]
        def do_GET(self) -> None:
            served.asked.append(self.path)
            if self.headers["Range"]:
                served.ranges[self.path] = self.headers["Range"]
            if self.path.startswith("/bundles/") and not served.is_reachable:
                self.close_connection = True  # no response, like an unreachable server
                return
            if (left := served.cuts.pop(self.path, None)) is not None:
                self.wfile = Cut(self.wfile, left)
            try:
                super().do_GET()
            except ConnectionAbortedError:
                self.close_connection = True

    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()
