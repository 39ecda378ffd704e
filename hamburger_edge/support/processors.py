"""The number of processors that this process may use, the default of `threads`."""

from __future__ import annotations

import os

MOST_THREADS = 1024  # more than any supported machine has


def usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
