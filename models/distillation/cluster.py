"""Jobs spread over workers that Ray starts, on this machine or on many.

    wanted() -> job --free worker--> result        a worker has one job at a time
                 ^                       |
                 +------ worker lost ----+         then another worker does that job again

Ray Core, not Ray Data: how many jobs there will be is known only as results come in, each worker keeps what
it loaded, and results are wanted by number, not as a table.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from hamburger_edge.errors import HamburgerError, InputError, RuntimeUnavailableError, require
from hamburger_edge.support.values import number_in, whole_in

LOCAL = "local"
LOSSES = 3  # of workers at one job, until it is taken for what they die of

Job = TypeVar("Job", bound=Hashable)
Result = TypeVar("Result")


class Cluster:
    """Workers of a Ray cluster: a running one's by its address, or those of one that is started for this
    ("local") and ends with it; where the program has a Ray session already, that one's. Use as a context."""

    def __init__(
        self, address: str, workers: int = 1, *, gpus: float | None = None, threads: int | None = None
    ) -> None:
        """`gpus` of each worker; None: one, where the cluster has any."""
        self.workers = whole_in("workers", workers, 1, 1 << 16)
        self.threads = threads
        if gpus is not None:
            number_in("gpus per worker", gpus, 0, 64)
        self.ray: Any = require("ray", "cluster")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
        self.own = not self.ray.is_initialized()
        if self.own:
            self._connect(address)
        has = self.ray.cluster_resources()
        self.gpus = gpus if gpus is not None else min(1.0, has.get("GPU", 0.0))
        if self.gpus > has.get("GPU", 0.0):
            self.close()
            raise InputError(
                f"{self.gpus:g} GPUs per worker: the cluster at {address} has {has.get('GPU', 0.0):g}"
            )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.own:
            self.ray.shutdown()

    def _connect(self, address: str) -> None:
        here: dict[str, Any] = {}
        if address == LOCAL:
            here = {"num_cpus": self.workers * (self.threads or 1), "include_dashboard": False}
        try:
            self.ray.init(address, logging_level="ERROR", log_to_driver=False, **here)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RuntimeUnavailableError(
                f"no Ray cluster answers at {address}: start one with  ray start --head,  or say {LOCAL!r}"
            ) from error

    def results(
        self, build: Callable[[], Callable[[Job], Result]], wanted: Callable[[], Job | None]
    ) -> Iterator[tuple[Job, Result]]:
        """What `build()`, called once in each worker, makes of the jobs that `wanted` names, as they end.

        `wanted` is asked whenever a worker is free; None: nothing more for now. It ends when nothing is under
        way and nothing wanted. Both functions' surroundings must be there on every machine.
        """
        run = _Run[Job, Result](self, build, wanted)
        try:
            yield from run.results()
        finally:
            run.stop()


class _Worker(Generic[Job, Result]):
    """In a process of its own."""

    def begin(self, build: Callable[[], Callable[[Job], Result]]) -> None:
        self.work = build()

    def do(self, job: Job) -> Result:
        return self.work(job)


class _Run(Generic[Job, Result]):
    def __init__(
        self,
        cluster: Cluster,
        build: Callable[[], Callable[[Job], Result]],
        wanted: Callable[[], Job | None],
    ) -> None:
        self.ray, self.wanted = cluster.ray, wanted
        self.build = self.ray.put(build)  # once, however many workers read it
        self.worker = self.ray.remote(num_cpus=cluster.threads or 1, num_gpus=cluster.gpus)(_Worker)
        self.busy: dict[Any, tuple[Any, Job | None]] = {}  # call under way -> worker, job; no job: it begins
        self.idle: list[Any] = []
        self.again: list[Job] = []  # their workers were lost
        self.lost = Counter[Job | None]()
        for _ in range(cluster.workers):
            self._start()

    def results(self) -> Iterator[tuple[Job, Result]]:
        while self.busy and not (self.idle and all(job is None for _, job in self.busy.values())):
            [call], _ = self.ray.wait(list(self.busy), num_returns=1)
            worker, job = self.busy.pop(call)
            try:
                result: Result = self.ray.get(call)
            except (self.ray.exceptions.RayActorError, self.ray.exceptions.ObjectLostError) as error:
                self.ray.kill(worker)  # it may be there again, without what it was doing
                self._replace(job, error)
                self._hand_out()
                continue
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from error
            if job is not None:
                yield job, result
            self.idle.append(worker)
            self._hand_out()

    def _hand_out(self) -> None:
        """To whoever is idle, and first what others were lost at: nothing is left while somebody is idle."""
        while self.idle and (following := self.again.pop() if self.again else self.wanted()) is not None:
            worker = self.idle.pop()
            self.busy[worker.do.remote(following)] = worker, following

    def stop(self) -> None:
        """What is still under way is not wanted any more."""
        for worker in [*self.idle, *(worker for worker, _ in self.busy.values())]:
            self.ray.kill(worker)

    def _start(self) -> None:
        """A worker gets its first job when it is there: the cluster may have room for it later, or never."""
        worker = self.worker.remote()
        self.busy[worker.begin.remote(self.build)] = worker, None

    def _replace(self, job: Job | None, error: Exception) -> None:
        self.lost[job] += 1
        if self.lost[job] == LOSSES:
            what = "as they began" if job is None else f"at {job}"
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise HamburgerError(
                f"{LOSSES} workers were lost {what}, the last with: {reason[:200]}"
            ) from error
        if job is not None:
            self.again.append(job)
        self._start()
