"""How many processors this process may use: what `threads` is by default, for those who must say a number."""

from __future__ import annotations

import os

MOST_THREADS = 1024  # more than any machine this is for


def usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
