"""Measure in rotation (A B C A B C ...), so that a temporary disturbance affects every program alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of repeated measurements."""

    median: float
    q1: float
    q3: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        q1, median, q3 = np.percentile(list(values), (25, 50, 75))
        return cls(float(median), float(q1), float(q3))

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def interleave(
    names: Sequence[str],
    measure: Callable[[str, int], T],
    *,
    rounds: int,
    go_on: Callable[[int], bool] = lambda done: True,
    failed: Callable[[str, Exception], None],
) -> dict[str, list[T]]:
    """Call `measure(name, round)` for each name in each round; return name -> one result per round.

    Round 0 warms up and gives no results. If `go_on(rounds done)` is False, no further round starts. If a
    measurement raises, `failed` receives the name and the error, and the name and its results are dropped.
    """
    measured: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds + 1):
        if number > 1 and not go_on(number - 1):
            break
        for name in [name for name in names if name in measured]:
            try:
                result = measure(name, number)
            except Exception as error:  # other programs may raise any type
                del measured[name]
                failed(name, error)
                continue
            if number:
                measured[name].append(result)
    return measured


def ratios(a: Sequence[float], b: Sequence[float]) -> Spread:
    """Return the spread of `a[i] / b[i]`. Pairs of one round ran under similar conditions."""
    return Spread.of(x / y for x, y in zip(a, b, strict=True))


def all_ratios(
    speeds: Mapping[str, Sequence[float]], pairs: Iterable[tuple[str, str]], of: str = "decode"
) -> list[dict[str, object]]:
    """Return a report's `ratios`: one entry per measured pair, with the ratio under the key `of`."""
    return [
        {"a": a, "b": b, of: ratios(speeds[a], speeds[b]).to_json()}
        for a, b in pairs
        if a in speeds and b in speeds
    ]
