"""The processors and the memory of this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

MOST_THREADS = 1024  # more than any supported machine has


def usable_processors() -> int:
    """Return the number of processors that this process may use, the default of `threads`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def let_threads_sleep() -> None:
    """Make PyTorch's threads sleep soon while they wait for each other; call this before PyTorch is imported.

    By default they spin for milliseconds, and on a busy machine they take the processor from the threads that
    they wait for. Seconds of a third of an int4 export on two processors:

        turns       300,000 (default)   10,000   1,000   none
        alone       16                  18       19      26
        two at once                     78       32      27
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def give_back_memory() -> None:
    """Return to Linux what was freed. Between steps of a training, glibc keeps up to 40 MB more each time."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
