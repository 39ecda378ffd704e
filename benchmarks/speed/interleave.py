"""A B C A B C ...: what disturbs a machine for a while then disturbs all alike, and pairs stay comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of what was measured again and again."""

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
    """`measure(name, round)` for every name in turn, `rounds` times over; results by name, one a round.

    Round 0 warms up and is not among the results. `go_on(rounds done)` may end it early, between two rounds.
    A name whose measurement raises is told to `failed` and takes no further part, nor do its results.
    """
    measured: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds + 1):
        if number > 1 and not go_on(number - 1):
            break
        for name in [name for name in names if name in measured]:
            try:
                result = measure(name, number)
            except Exception as error:  # whatever somebody else's program raises
                del measured[name]
                failed(name, error)
                continue
            if number:
                measured[name].append(result)
    return measured


def ratios(a: Sequence[float], b: Sequence[float]) -> Spread:
    """Round by round, since only what ran side by side ran on the same machine."""
    return Spread.of(x / y for x, y in zip(a, b, strict=True))


def all_ratios(
    speeds: Mapping[str, Sequence[float]], pairs: Iterable[tuple[str, str]], of: str = "decode"
) -> list[dict[str, object]]:
    """The `ratios` of a report, for those pairs of which both were measured; `of` names what they are of."""
    return [
        {"a": a, "b": b, of: ratios(speeds[a], speeds[b]).to_json()}
        for a, b in pairs
        if a in speeds and b in speeds
    ]
