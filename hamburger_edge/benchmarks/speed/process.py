"""Run a contender in a separate process, to isolate its memory, its load time and its crashes.

this process --(method, arguments)--> the child's contender --(result or error)--> this process
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.contender import Facts, Source, TimedTurn, WeightBytes
from hamburger_edge.errors import HamburgerError, RuntimeUnavailableError


class Process:
    """A `Contender` that forwards each call to a child process. `close` may be called twice."""

    def __init__(self, adapter: str, source: Source, options: Mapping[str, Any]):
        context = multiprocessing.get_context("spawn")
        self.name = adapter
        self.pipe, theirs = context.Pipe()
        self.child = context.Process(
            target=_serve, args=(theirs, adapter, source, dict(options)), daemon=True
        )
        self.child.start()
        theirs.close()

    def prepare(self) -> Path:
        path: Path = self.ask("prepare")
        return path

    def load(self) -> Facts:
        facts: Facts = self.ask("load")
        return facts

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn:
        turn: TimedTurn = self.ask("turn", list(prompt), tokens, variant)
        return turn

    def weight_bytes(self) -> WeightBytes:
        read: WeightBytes = self.ask("weight_bytes")
        return read

    def usage(self) -> tuple[float, float | None]:
        """Return the load time in seconds, imports included, and the peak memory so far in MB."""
        seconds, peak = self.ask("usage")
        return seconds, peak

    def close(self) -> None:
        if self.child.is_alive():
            with contextlib.suppress(OSError):
                self.pipe.send(None)
            self.child.join(10)
            if self.child.is_alive():
                self.child.kill()
                self.child.join()
        self.pipe.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the contender."""
        try:
            self.pipe.send((method, arguments))
            kind, answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.child.join(10)
            raise RuntimeUnavailableError(
                f"its process ended ({_cause(self.child.exitcode)}) in {method}"
            ) from error
        if kind == "error":
            raise HamburgerError(answer)
        return answer


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _serve(pipe: Connection, adapter: str, source: Source, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    os.environ.setdefault("OMP_NUM_THREADS", str(source.threads))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all files are local
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _hush()
    began, loaded_s = time.perf_counter(), 0.0
    module, _, name = adapter.partition(":")
    contender = None
    while (request := _next(pipe)) is not None:
        method, arguments = request
        try:
            if method == "usage":
                pipe.send(("result", (loaded_s, peak_rss_mb())))
                continue
            if contender is None:
                contender = getattr(importlib.import_module(module), name)(source, **options)
            answer = getattr(contender, method)(*arguments)
            if method == "load":
                loaded_s = time.perf_counter() - began
            pipe.send(("result", answer))
        except BaseException as error:
            if "--debug" in sys.argv:
                traceback.print_exc()
            pipe.send(("error", f"{type(error).__name__}: {_one_line(error)}"))
    if contender is not None:
        contender.close()


def _next(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:  # the parent has ended
        return None


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "no reason given"


def _hush() -> None:
    """Discard stdout and stderr, so that other programs' messages do not break the tables."""
    if "--debug" not in sys.argv:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)


def peak_rss_mb() -> float | None:
    """Return this process's peak memory in MB.

    On Linux read `VmHWM`, because `ru_maxrss` can include the parent's memory before the fork.
    """
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6  # the unit kB means KiB here
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
