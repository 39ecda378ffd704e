"""Run one call in a separate process, and classify faults in how it ended."""

from __future__ import annotations

import json
import os
import resource
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hamburger_edge.errors import LONGEST, HamburgerError


class Ended(NamedTuple):
    how: str  # "said", or "refused" by a tidy error of ours, or whatever else happened
    text: str = ""  # return value or error message
    memory: int = 0  # peak, in KiB


def isolated(call: Callable[[], str], seconds: int, waits: int = 15) -> Ended:
    """Run a call with a limit of `seconds` of processor time, and of `waits` times that by the clock."""
    with tempfile.NamedTemporaryFile(prefix="isolated-") as file:
        said = Path(file.name)
        child = os.fork()
        if child == 0:
            # each of these ends the process
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            signal.alarm(waits * seconds)
            said.write_text(json.dumps(_called(call)))
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        if os.WIFSIGNALED(status):
            return Ended(signal.Signals(os.WTERMSIG(status)).name, memory=usage.ru_maxrss)
        how, text = json.loads(said.read_text() or '["ended without a word", ""]')
        return Ended(how, text, usage.ru_maxrss)


def _called(call: Callable[[], str]) -> tuple[str, str]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        return "said", call()
    except HamburgerError as error:
        text = str(error)
        tidy = len(text) <= LONGEST and text.isprintable()
        return "refused" if tidy else "a message that is long or not one line", text
    except BaseException as error:
        return f"raised {type(error).__name__}", str(error)[:LONGEST]


def fault(got: Ended, honest: Ended, *, hashed: bool) -> str | None:
    """Return the fault, or None. `hashed`: the hash of the files could have shown the damage."""
    if got.how not in ("said", "refused"):
        return f"{got.how}: {got.text[:200]}"
    if got.memory > 2 * honest.memory:
        return f"{got.memory >> 10} MiB of memory, honest files take {honest.memory >> 10}"
    if got.how == "said" and got.text != honest.text and hashed:
        return "said something else, which a hash could have known"
    return None
