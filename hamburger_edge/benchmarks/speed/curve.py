"""Cost per token against answer length. Programs take turns, `CHUNK` tokens each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hamburger_edge.benchmarks.speed.interleave import Spread, ratios
from hamburger_edge.errors import HamburgerError

CHUNK = 64  # tokens per stretch; no group is larger
LENGTHS = (128, 256, 512, 1024, 2048, 4096)  # rows of the table: mean cost since the previous length


Ask = Callable[..., Any]  # calls a method of a contender with its arguments
Point = Mapping[str, Any]


def curve(
    runners: Mapping[str, tuple[Ask, str]],
    prompt: Sequence[int],
    longest: int,
    *,
    go_on: Callable[[int], bool],
    failed: Callable[[str, HamburgerError], None],
) -> list[dict[str, Any]]:
    """Return one point per stretch and runner, in the order of measurement. `runners`: name -> ask, variant.

    The curve ends early if `go_on(tokens so far)` is False. A runner that fails keeps its points and gets no
    further turn.
    """
    points: list[dict[str, Any]] = []
    before: dict[str, tuple[int, float]] = {}  # tokens, seconds

    def ask(name: str, method: str, *arguments: Any) -> Any:
        try:
            return runners[name][0](method, *arguments)
        except HamburgerError as error:
            before.pop(name, None)
            failed(name, error)

    for name, (_, variant) in runners.items():
        before[name] = 0, 0.0
        ask(name, "begin", prompt, longest, variant)
        if name in before and (reached := ask(name, "advance", 1)) is not None:  # excludes the prefill
            before[name] = reached[:2]
    for until in range(CHUNK, longest + 1, CHUNK):
        if not before or not go_on(until - CHUNK):
            break
        for name in list(before):
            if (reached := ask(name, "advance", until)) is None:
                continue
            tokens, seconds, kv = reached
            was = before[name]
            ms = 1000 * (seconds - was[1]) / (tokens - was[0])
            points.append({"name": name, "tokens": tokens, "ms_per_token": ms, "kv_bytes": kv})
            before[name] = tokens, seconds
    return points


@dataclass(frozen=True)
class Cost:
    """Mean cost of the tokens between the previous length and this one."""

    name: str
    length: int
    ms_per_token: float
    kv_bytes: int  # at `length`
    speed_over: dict[str, Spread]  # other program -> paired ratios of the stretches


def by_name(points: Sequence[Point]) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for point in points:
        curves.setdefault(point["name"], []).append(point)
    return curves


def at_lengths(points: Sequence[Point]) -> list[Cost]:
    """Summarize the curve at `LENGTHS`, with one entry per program that reached the length."""
    curves = by_name(points)
    costs, first = [], 0
    for length in LENGTHS:
        last = length // CHUNK
        some = {name: curve[first:last] for name, curve in curves.items() if len(curve) >= last}
        ms = {name: [point["ms_per_token"] for point in curve] for name, curve in some.items()}
        for name, curve in some.items():
            over = {other: ratios(ms[other], ms[name]) for other in some if other != name}
            costs.append(Cost(name, length, float(np.mean(ms[name])), curve[-1]["kv_bytes"], over))
        first = last
    return costs
