"""The number of processors that this process may use, the default of `threads`."""

from __future__ import annotations

import os

MOST_THREADS = 1024  # more than any supported machine has


def usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def let_threads_sleep() -> None:
    """Make PyTorch's threads sleep while they wait for each other; call this before PyTorch is imported.

    By default they spin, and on a busy machine they take the processor from the threads that they wait for:
    rounding a layer beside other programs took seven times as long.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
