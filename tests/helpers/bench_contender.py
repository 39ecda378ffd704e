"""A contender with known figures for tests of its process, and its arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.contender import Facts, Source, TimedTurn, WeightBytes

PROMPT = [5, 6, 7, 8]


def source(**changes: Any) -> Source:
    fields = {"bundle": Path("none"), "checkpoint": None, "precision": "fp32", "threads": 1, "slots": 512}
    return Source(**{**fields, **changes})


class Known:
    """The parent's end of a contender whose figures are known."""

    closed = False

    def prepare(self) -> Path:
        return Path("made")

    def load(self) -> Facts:
        return Facts("fp32", kv_bytes_per_slot=100)

    def weight_bytes(self) -> WeightBytes:
        return WeightBytes(1000)

    def usage(self) -> tuple[float, float | None]:
        return 1.5, 64.0

    def close(self) -> None:
        self.closed = True


class Contender:
    def __init__(self, source: Source) -> None:
        self.held: Any = None

    def load(self) -> Facts:
        return Facts("fp32", 1)

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn:
        return TimedTurn(tuple(range(tokens)), 1.0, 1.0, 1, len(prompt), tokens, tokens - 1)

    def weight_bytes(self) -> WeightBytes:
        return WeightBytes(1)

    def hold(self, size: int) -> None:
        self.held = b"x" * size

    def fail(self) -> None:
        raise ValueError("first line\nsecond line")

    def die(self, number: int) -> None:
        os.kill(os.getpid(), number)

    def close(self) -> None:
        pass
