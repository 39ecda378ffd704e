"""Start each measured server in a separate process. If the start fails, report the end of its log."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.peers.serving.clients import ALTERNATING, CLIENTS, SCENARIOS
from hamburger_edge.errors import HamburgerError, one_line

SECONDS = 120  # maximum start time, loading included


@dataclass(frozen=True)
class Contestant:
    """A server's command, its extra request fields, and the scenarios that it takes part in."""

    name: str
    command: tuple[str, ...]  # `{port}` is replaced with a free port
    fields: Mapping[str, Any] = field(default_factory=dict)
    scenarios: Sequence[str] = SCENARIOS


def ours(
    bundle: Path, threads: int, slots: int, name: str = "serve", *, workers: int = 1, **fields: Any
) -> Contestant:
    """Return our server. The workers share the threads.

    With several workers it takes part only in the scenarios with several clients.
    """
    options = {"--threads": threads // workers, "--cache-slots": slots, "--workers": workers}
    given = [word for option, value in options.items() for word in (option, str(value))]
    command = (sys.executable, "-m", "hamburger_edge", "serve", str(bundle), "--port", "{port}", *given)
    several = [name for name, clients in CLIENTS.items() if clients > 1]
    return Contestant(name, command, fields, SCENARIOS if workers == 1 else several)


def llama_cpp(file: Path, threads: int, slots: int, *, cache: bool = False) -> Contestant:
    """Return the server of llama-cpp-python.

    With `cache` it keeps earlier contexts in memory and takes part only in the alternating conversations. Two
    options that are on by default are off here. `interrupt_requests` ends a stream when the next request
    arrives. `logits_all` computes and copies the logits of every prompt token, which the clients do not need.
    """
    options = {"model": file, "n_ctx": slots, "n_threads": threads, "n_threads_batch": threads}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    given += ["--chat_format", "chatml", "--port", "{port}", "--verbose", "false"]
    given += ["--interrupt_requests", "false", "--logits_all", "false"]
    given += ["--cache", "true"] if cache else []
    command = (sys.executable, "-m", "llama_cpp.server", *given)
    if cache:
        return Contestant("llama.cpp+cache", command, scenarios=(ALTERNATING,))
    return Contestant("llama.cpp", command)


@contextmanager
def started(contestant: Contestant) -> Iterator[int]:
    """Start a server, yield its port as soon as it answers, and stop it at the end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    command: Sequence[str] = [word.format(port=port) for word in contestant.command]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            end = time.monotonic() + SECONDS
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise HamburgerError(f"{contestant.name} did not start: {one_line(log.read()[-300:])}")
                time.sleep(0.2)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
