"""Time calls of a backend, for the costs of a drafted row and of a micro step on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

from hamburger_edge.drafts.drafting import USUAL_COSTS, Costs
from hamburger_edge.loop.backend import Backend

ROUNDS, FEWEST_ROUNDS = 7, 3  # the shortest time counts: other programs only make a call longer
SECONDS = 0.7  # of the first start of a bundle, after which no further round begins
DRAFT_ROWS = 4  # rows of a usual draft, over which the cost of one is averaged
SLOTS = 64  # of a usual text: attention to them makes each further row dearer
UNDISTURBED = 0.8  # share of the time in which the threads have a processor, if nothing else runs
HIGHEST_COST = 2.0  # of a call


@dataclass(frozen=True)
class CallTimes:
    rows: dict[int, float]  # rows of a base call -> seconds
    micro: float | None  # seconds of a micro step; None: a plain model makes none
    processors: float  # that the process used on average
    pairs_rows: bool = False  # a call with one row takes as long as one with two

    def costs(self) -> Costs:
        """Return the costs of one more row and of a micro step, in units of a call with one row."""
        one, few = self.rows[1], self.rows[DRAFT_ROWS]
        row = (few - one) / (DRAFT_ROWS - (2 if self.pairs_rows else 1)) / one
        return Costs(_limited(row), USUAL_COSTS.micro if self.micro is None else _limited(self.micro / one))

    def undisturbed(self, threads: int) -> bool:
        """Whether the threads had their processors: calls of a busy machine have other proportions."""
        return undisturbed(self.processors, threads)


def time_calls(
    backend: Backend, rows: Sequence[int] = (1, DRAFT_ROWS), *, seconds: float = SECONDS, threads: int = 0
) -> CallTimes | None:
    """Time calls in turns, behind SLOTS slots if the cache has room. It is empty before and after.

    None: they take too long.

    A micro step follows a base call, as in a draft, so its weights are not in the processor's cache. With
    `threads` it ends, with None, as soon as these do not have a processor each. The first round, which reads
    weights from the disk, does not count for that.
    """
    token = min(backend.info.eos_ids, default=0)
    end = perf_counter() + seconds
    slots = max(0, min(SLOTS, backend.info.cache_slots - max(rows) - 1))
    if slots:
        backend.macro([(token,)] * slots, range(slots), [slots - 1])
    base, steps = [list[float]() for _ in rows], list[float]()
    clock = ProcessorClock()
    while len(base[0]) < ROUNDS and (not base[0] or perf_counter() < end):
        for times, count in zip(base, rows, strict=True):
            backend.truncate(slots)
            begin = perf_counter()
            readout = backend.macro([(token,)] * count, range(slots, slots + count), range(count))
            times.append(perf_counter() - begin)
            if not backend.info.has_graft:
                continue
            backend.micro_begin(readout.features[0])
            begin = perf_counter()
            backend.micro(token)
            steps.append(perf_counter() - begin)
        if len(base[0]) == 1:
            clock = ProcessorClock()
        elif not undisturbed(clock.processors(), threads):
            break
    backend.truncate(0)
    calls = dict(zip(rows, map(min, base), strict=True))
    micro = min(steps, default=None)
    measured = CallTimes(calls, micro, clock.processors(), backend.info.pairs_rows)
    whole = len(base[0]) >= FEWEST_ROUNDS and measured.undisturbed(threads)
    return measured if whole else None


class ProcessorClock:
    """Counts the processors that the process uses on average, from now on."""

    def __init__(self) -> None:
        self._began, self._used = perf_counter(), process_time()

    def processors(self) -> float:
        return (process_time() - self._used) / max(perf_counter() - self._began, 1e-9)


def undisturbed(processors: float, threads: int) -> bool:
    return processors >= UNDISTURBED * threads


def _limited(cost: float) -> float:
    return round(min(max(cost, 0.01), HIGHEST_COST), 3)
