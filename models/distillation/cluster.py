"""Distribute jobs to workers that Ray starts, on one machine or on many.

    next_job() -> job --free worker--> result      a worker has one job at a time
                   ^                      |
                   +----- worker lost ----+        then another worker repeats the job

It uses Ray Core, not Ray Data: results decide how many jobs follow, workers keep their loaded models, and
results have numbers instead of table rows.
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
LOSSES = 3  # of workers at one job, until the job counts as the cause

Job = TypeVar("Job", bound=Hashable)
Result = TypeVar("Result")


class Cluster:
    """Workers of a Ray cluster, as a context manager.

    The address of a running cluster joins it, "local" starts one that ends with the context. If the program
    has a Ray session, the workers are in that session.
    """

    def __init__(
        self, address: str, workers: int = 1, *, gpus: float | None = None, threads: int | None = None
    ) -> None:
        """`gpus`: per worker; None: one if the cluster has any."""
        self.workers = whole_in("workers", workers, 1, 1 << 16)
        self.threads = threads
        if gpus is not None:
            number_in("gpus per worker", gpus, 0, 64)
        self.ray: Any = require("ray", "cluster")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends no usage data
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
                f"no Ray cluster answers at {address}: start one with  ray start --head,  or use {LOCAL!r}"
            ) from error

    def results(
        self, build: Callable[[], Callable[[Job], Result]], next_job: Callable[[], Job | None]
    ) -> Iterator[tuple[Job, Result]]:
        """Yield jobs with their results, in the order in which they finish.

        Each worker calls `build()` once, for the function that does its jobs. A free worker takes
        `next_job()`; None: no job at present. The results end when no job runs and none is left. All modules
        of both functions must be installed on every machine.
        """
        run = _Run[Job, Result](self, build, next_job)
        try:
            yield from run.results()
        finally:
            run.stop()


class _Worker(Generic[Job, Result]):
    """A process of Ray that does jobs."""

    def begin(self, build: Callable[[], Callable[[Job], Result]]) -> None:
        self.work = build()

    def do(self, job: Job) -> Result:
        return self.work(job)


class _Run(Generic[Job, Result]):
    def __init__(
        self,
        cluster: Cluster,
        build: Callable[[], Callable[[Job], Result]],
        next_job: Callable[[], Job | None],
    ) -> None:
        self.ray, self.next_job = cluster.ray, next_job
        self.build = self.ray.put(build)  # one copy for all workers
        self.worker = self.ray.remote(num_cpus=cluster.threads or 1, num_gpus=cluster.gpus)(_Worker)
        self.busy: dict[Any, tuple[Any, Job | None]] = {}  # running call -> worker, job; None: it builds
        self.idle: list[Any] = []
        self.repeated: list[Job] = []  # jobs of lost workers
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
                self.ray.kill(worker)  # Ray may have restarted it without its job
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
        """Give jobs to idle workers, those of lost workers first."""
        while self.idle and (job := self.repeated.pop() if self.repeated else self.next_job()) is not None:
            worker = self.idle.pop()
            self.busy[worker.do.remote(job)] = worker, job

    def stop(self) -> None:
        """End all workers and their running jobs."""
        for worker in [*self.idle, *(worker for worker, _ in self.busy.values())]:
            self.ray.kill(worker)

    def _start(self) -> None:
        """Request a worker. The cluster may start it later, or never, so it gets its first job only then."""
        worker = self.worker.remote()
        self.busy[worker.begin.remote(self.build)] = worker, None

    def _replace(self, job: Job | None, error: Exception) -> None:
        self.lost[job] += 1
        if self.lost[job] == LOSSES:
            what = "at their start" if job is None else f"at {job}"
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise HamburgerError(
                f"{LOSSES} workers were lost {what}, the last with: {reason[:200]}"
            ) from error
        if job is not None:
            self.repeated.append(job)
        self._start()
