"""Describe this machine: processor, memory, package versions and read bandwidth."""

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
TRIES = 5
LARGE = 1 << 30  # bytes to read: larger than most last-level caches


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
    """Return the versions of Python and of the installed `distributions`."""
    installed = {"python": platform.python_version()}
    for name in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def bandwidth(threads: int, weights: int) -> dict[str, float]:
    """Measure the bytes a second that `threads` read from memory, and from a buffer as large as the weights.

    The second rate is higher if the weights stay in the last-level cache between steps.
    """
    large = LARGE
    with contextlib.suppress(OSError, ValueError, AttributeError):  # at most an eighth of the memory
        large = min(LARGE, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
    return {
        "memory_bytes_per_s": read_speed(large, threads),
        "weights_bytes_per_s": read_speed(min(max(weights, 1 << 20), large), threads),
    }


def read_speed(size: int, threads: int, clock: Callable[[], float] = perf_counter) -> float:
    """Return the best rate of several tries in bytes a second. Each thread reduces its part of the buffer."""
    parts = np.array_split(np.ones(size // 8, np.int64), threads)
    block = 1 << 15  # 256 KiB per call, so that the overhead is negligible

    def read(part: Any) -> int:
        total = 0
        for start in range(0, len(part), block):
            total |= int(np.bitwise_or.reduce(part[start : start + block]))
        return total

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(TRIES + 1):  # the first try also starts the threads
            began = clock()
            list(pool.map(read, parts))
            best = max(best, 8 * sum(map(len, parts)) / max(clock() - began, 1e-9))
    return best
