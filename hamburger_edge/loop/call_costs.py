"""Time calls of a backend, for the costs of a drafted row and of a micro step on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, process_time

import numpy as np

from hamburger_edge.drafts.drafting import FEW_SLOTS, USUAL_COSTS, Costs
from hamburger_edge.loop.backend import Backend

ROUNDS, FEWEST_ROUNDS = 7, 3  # the shortest time counts: other programs only make a call longer
SECONDS = 0.7  # of the first start of a bundle, after which no further round begins
DRAFT_ROWS = 4  # rows of a usual draft, over which the cost of one is averaged
COSTED_ROWS = (1, DRAFT_ROWS)
MANY_SLOTS = 1024  # of a long text: attention to them makes a call, and each further row, dearer
UNDISTURBED = 0.8  # share of the time in which the threads have a processor, if nothing else runs
HIGHEST_COST = 2.0  # of a call


@dataclass(frozen=True)
class CallTimes:
    rows: Mapping[int, float]  # rows of a base call -> seconds
    micro: float | None  # seconds of a micro step; None: a plain model makes none
    processors: float  # that the process used on average
    pairs_rows: bool = False  # a call with one row takes as long as one with two
    many_slots: int = 0  # 0: the cache has no room for many, or calls behind them take too long
    rows_behind_many: Mapping[int, float] = field(default_factory=dict)

    def costs(self) -> Costs:
        """Return the costs of one more row and of a micro step, in units of a call with one row."""
        one, row = self.rows[1], self._row(self.rows)
        micro = USUAL_COSTS.micro if self.micro is None else _limited(self.micro / one)
        if not self.many_slots:
            return Costs(_limited(row / one), micro)
        unit = one * (self.many_slots - FEW_SLOTS) / 1000
        call_slots = (self.rows_behind_many[1] - one) / unit
        row_slots = (self._row(self.rows_behind_many) - row) / unit
        return Costs(_limited(row / one), micro, _limited(call_slots, 0.0), _limited(row_slots, 0.0))

    def _row(self, seconds: Mapping[int, float]) -> float:
        """Return the seconds of one more row."""
        return (seconds[DRAFT_ROWS] - seconds[1]) / (DRAFT_ROWS - (2 if self.pairs_rows else 1))

    def undisturbed(self, threads: int) -> bool:
        """Whether the threads had their processors: calls of a busy machine have other proportions."""
        return undisturbed(self.processors, threads)


def time_calls(
    backend: Backend, rows: Sequence[int] = COSTED_ROWS, *, seconds: float = SECONDS, threads: int = 0
) -> CallTimes | None:
    """Time calls in turns, behind few slots, and behind many if there is room. The cache is empty then.

    None: they take too long. With `threads`, None also as soon as these do not have a processor each.
    """
    info = backend.info
    token = min(info.eos_ids, default=0)
    room = min(info.cache_slots, info.context_length) - max(rows) - 1
    few = max(0, min(FEW_SLOTS, room))
    if few:
        backend.macro([(token,)] * few, range(few), [few - 1])
    rounds = _Rounds(backend, token, seconds, threads)
    try:
        short = rounds.behind(few, rows, micro=info.has_graft)
        if short is None:
            return None
        micro = min(rounds.micro, default=None)
        times = CallTimes(short, micro, rounds.processors, info.pairs_rows)
        if room < 2 * FEW_SLOTS:
            return times
        many = min(MANY_SLOTS, room)
        repeats = -(-many // few)  # restored, not computed: a call takes as long whatever they hold
        snapshot = {
            name: np.tile(part, (1, 1, repeats, 1))[:, :, :many] for name, part in backend.snapshot().items()
        }
        backend.restore(snapshot, many)
        long = rounds.behind(many, COSTED_ROWS)
        return times if long is None else replace(times, many_slots=many, rows_behind_many=long)
    finally:
        backend.truncate(0)


class _Rounds:
    """Calls of each number of rows, in turns."""

    def __init__(self, backend: Backend, token: int, seconds: float, threads: int) -> None:
        self.backend, self.token, self.seconds, self.threads = backend, token, seconds, threads
        self.micro: list[float] = []  # seconds of steps
        self.processors = 0.0

    def behind(self, slots: int, rows: Sequence[int], *, micro: bool = False) -> dict[int, float] | None:
        """Return the shortest times, or None.

        With `micro` a micro step follows each base call, as in a draft, so its weights are not in the
        processor's cache. The first round reads weights from the disk, so it does not tell whether the
        threads have processors.
        """
        times: dict[int, list[float]] = {count: [] for count in rows}
        clock, end, done = ProcessorClock(), perf_counter() + self.seconds, 0
        while done < ROUNDS and (not done or perf_counter() < end):
            for count in rows:
                times[count].append(self._call(slots, count, micro))
            done += 1
            if done == 1:
                clock = ProcessorClock()
            elif not undisturbed(clock.processors(), self.threads):
                return None
        self.processors = clock.processors()
        whole = done >= FEWEST_ROUNDS and undisturbed(self.processors, self.threads)
        return {count: min(seconds) for count, seconds in times.items()} if whole else None

    def _call(self, slots: int, count: int, micro: bool) -> float:
        backend = self.backend
        backend.truncate(slots)
        begin = perf_counter()
        readout = backend.macro([(self.token,)] * count, range(slots, slots + count), range(count))
        seconds = perf_counter() - begin
        if micro:
            backend.micro_begin(readout.features[0])
            begin = perf_counter()
            backend.micro(self.token)
            self.micro.append(perf_counter() - begin)
        return seconds


class ProcessorClock:
    """Counts the processors that the process uses on average, from now on."""

    def __init__(self) -> None:
        self._began, self._used = perf_counter(), process_time()

    def processors(self) -> float:
        return (process_time() - self._used) / max(perf_counter() - self._began, 1e-9)


def undisturbed(processors: float, threads: int) -> bool:
    return processors >= UNDISTURBED * threads


def _limited(cost: float, lowest: float = 0.01) -> float:
    return round(min(max(cost, lowest), HIGHEST_COST), 3)
