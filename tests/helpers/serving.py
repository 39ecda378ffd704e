"""A server on a free port: in a thread of the test's process, or in a separate process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

from hamburger_edge.model import Model
from hamburger_edge.serve.application import RequestLog
from hamburger_edge.serve.browser import NOTHING, InBrowser
from hamburger_edge.serve.gate import Access
from hamburger_edge.serve.pool import Pool
from hamburger_edge.serve.requests import RequestLimits
from hamburger_edge.serve.server import Server, listen
from hamburger_edge.serve.suggestions import NO_SUGGESTIONS, Suggestions
from helpers.places import PATIENCE

QUIET = RequestLog(requests=False)


@dataclass(frozen=True)
class Running:
    server: Server
    pool: Pool
    port: int
    thread: threading.Thread

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)

    def ask(self, text: str = "Tell", **fields: Any) -> httpx.Response:
        with self.client() as client:
            return client.post("/v1/chat/completions", json=question(text, **fields))

    def asking(self, text: str = "Tell", **fields: Any) -> Future[httpx.Response]:
        """Send a request from another thread and return its future response."""
        return ThreadPoolExecutor(1).submit(self.ask, text, **fields)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()


def question(text: str = "Tell", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 12, **fields}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@dataclass(frozen=True)
class Program:
    process: subprocess.Popen[str]
    port: int


@contextmanager
def served(bundle: Path, *options: str) -> Iterator[Program]:
    """Run the command in a separate process and stop it by Ctrl-C: exit code 0, no traceback."""
    command = [sys.executable, "-m", "hamburger_edge", "serve", str(bundle), "--port", "0", *options]
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log, text=True) as process:
        try:
            while not (found := re.search(r":(\d+)\n", _read(log))):
                assert process.poll() is None, _read(log)
                time.sleep(0.05)
            yield Program(process, int(found[1]))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(60)
            said = _read(log)
    assert (process.returncode, "Traceback" in said) == (0, False), said


def _read(log: IO[str]) -> str:
    log.seek(0)
    return log.read()


@contextmanager
def serving(
    load: Callable[[], Model] | Sequence[tuple[str, Callable[[], Model]]],
    *,
    access: Access | None = None,
    limits: RequestLimits | None = None,
    log: RequestLog = QUIET,
    grace: float = 5,
    in_browser: InBrowser = NOTHING,
    suggestions: Suggestions = NO_SUGGESTIONS,
    **options: Any,
) -> Iterator[Running]:
    bundles = [("toy", load)] if callable(load) else load
    pool = Pool(bundles, **options)
    try:
        with listen("127.0.0.1", 0) as listening:
            port = listening.getsockname()[1]
            access = access or Access.of("127.0.0.1")
            pages: Any = {"in_browser": in_browser, "suggestions": suggestions}
            server = Server(pool, access, limits or RequestLimits(), log, grace=grace, **pages)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            running = Running(server, pool, port, thread)
            while not server.started:
                assert thread.is_alive()
                thread.join(0.01)
            yield running
            running.stop()
    finally:
        pool.close()
