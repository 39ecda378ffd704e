"""This machine: processor, memory, versions of what is measured, and how fast its memory can be read."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

DISTRIBUTIONS = (
    *("hamburger-edge", "onnxruntime", "llama-cpp-python", "onnxruntime-genai"),
    *("optimum-onnx", "transformers", "torch", "numpy"),
)
LARGE = 1 << 30  # bytes to read: more than caches hold; machines that share a cache may hold even this


def describe() -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    facts: dict[str, Any] = {"cpu": processor, "cores": os.cpu_count(), "instructions": []}
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if name := re.search(r"^model name\s*: (.*)", text, re.MULTILINE):
            facts["cpu"] = name.group(1)
        flags = re.search(r"^flags\s*: (.*)", text, re.MULTILINE)
        known = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8")
        facts["instructions"] = [flag for flag in known if flags and flag in flags.group(1).split()]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        facts["memory_gb"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    facts["system"] = f"{platform.system()} {platform.release()}"
    return facts


def versions(distributions: Iterable[str] = DISTRIBUTIONS) -> dict[str, str]:
    """Python's, and of those packages that are here."""
    found = {"python": platform.python_version()}
    for name in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def bandwidth(threads: int, weights: int, clock: Callable[[], float] = perf_counter) -> dict[str, float]:
    """Bytes a second that `threads` can read: of memory, and of a buffer as large as the weights.

    The second is higher where the weights stay in the last cache from one step to the next.
    """
    large = LARGE
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a small board has not that much to spare
        large = min(LARGE, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
    return {
        "memory_bytes_per_s": read_speed(large, threads, clock),
        "weights_bytes_per_s": read_speed(min(max(weights, 1 << 20), large), threads, clock),
    }


def read_speed(size: int, threads: int, clock: Callable[[], float] = perf_counter, tries: int = 5) -> float:
    """Bytes a second, the best of some tries; each thread reduces its part of the buffer to one number."""
    parts = np.array_split(np.ones(size // 8, np.int64), threads)
    block = 1 << 15  # numbers: 256 KiB at a time, so that what is spent outside of reading is nothing

    def read(part: Any) -> int:
        total = 0
        for start in range(0, len(part), block):
            total |= int(np.bitwise_or.reduce(part[start : start + block]))
        return total

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(tries + 1):  # the first one also starts the threads
            began = clock()
            list(pool.map(read, parts))
            best = max(best, 8 * sum(map(len, parts)) / max(clock() - began, 1e-9))
    return best
