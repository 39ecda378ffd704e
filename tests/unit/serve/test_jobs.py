"""The fair queue: clients take turns, and a finished job leaves no state."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from helpers.serving import question

from hamburger_edge.loop.dial import UNMEASURED
from hamburger_edge.serve.fields import RefusedError
from hamburger_edge.serve.jobs import FairQueue, Job
from hamburger_edge.serve.requests import RequestLimits, read_chat


@pytest.fixture
def job() -> Callable[[str], Job]:
    """From a client, or from one of its users: `a`, `a/u`."""

    async def make(name: str) -> Job:
        client, _, user = name.partition("/")
        asked = read_chat(question(user=user or None), lambda _: UNMEASURED, RequestLimits())
        return Job(asked, "", client)

    return lambda client: asyncio.run(make(client))


def test_clients_and_their_users_take_turns(job: Callable[[str], Job]) -> None:
    """A regression: a client that named another user in each request got all the turns."""
    queue = FairQueue(10)
    jobs = [job(name) for name in ("a/u", "a/u", "a/v", "a/w", "b/u", "b")]
    for each in jobs:
        queue.put(each, 1)
    assert queue.drop(jobs[3])
    assert [queue.take() for _ in range(5)] == [jobs[place] for place in (0, 4, 2, 5, 1)]
    assert len(queue) == 0


def refusal(queue: FairQueue, job: Job, retry_after: int = 1) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        queue.put(job, retry_after)
    return refused.value


def test_full_queue_refusal_has_retry_after(job: Callable[[str], Job]) -> None:
    queue = FairQueue(1)
    first = job("a")
    queue.put(first, 1)
    refused = refusal(queue, job("a/v"), 7)
    assert (refused.status, refused.headers) == (429, {"retry-after": "7"})
    assert queue.drop(first)
    assert not queue.drop(first)
    queue.put(job("a/v"), 1)


def test_full_client_leaves_the_places_of_other_clients(
    job: Callable[[str], Job],
) -> None:
    """One key with 64 waiting requests got every other key a 429."""
    queue = FairQueue(64)
    for _ in range(64):
        queue.put(job("a"), 1)
    assert refusal(queue, job("a")).status == 429
    for _ in range(64):
        queue.put(job("b"), 1)


def test_beyond_the_total_each_client_has_one_place(job: Callable[[str], Job]) -> None:
    queue = FairQueue(2, total=3)
    for client in ("a", "a", "b"):
        queue.put(job(client), 1)
    assert refusal(queue, job("b")).status == 429
    for client in ("c", "d"):
        queue.put(job(client), 1)
        assert refusal(queue, job(client)).status == 429
    for _ in range(3):
        queue.take()
    queue.put(job("d"), 1)


def test_idle_worker_takes_a_job_without_a_queue(job: Callable[[str], Job]) -> None:
    queue = FairQueue(0)
    with pytest.raises(RefusedError):
        queue.put(job("a"), 1)
    found: list[Job | None] = []
    worker = threading.Thread(target=lambda: found.append(queue.take()))
    worker.start()
    while not queue._idle:
        pass
    queue.put(job("a"), 1)
    worker.join(10)
    assert [each.client for each in found if each] == ["a"]


def test_close_ends_workers_and_returns_waiting_jobs(job: Callable[[str], Job]) -> None:
    queue = FairQueue(3)
    waiting = job("a")
    queue.put(waiting, 1)
    assert queue.close() == [waiting]
    assert queue.take() is None
    with pytest.raises(RefusedError) as refused:
        queue.put(job("b"), 1)
    assert refused.value.status == 503
