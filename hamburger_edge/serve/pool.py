"""Workers, each with one thread and one loaded model. Workers of one model share queue and conversations."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hamburger_edge.calls.catalogue import Catalogue
from hamburger_edge.chat.stream import Chunk, Stream
from hamburger_edge.errors import ContextFullError, HamburgerError, InputError
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.loop.stats import Stats
from hamburger_edge.model import Model
from hamburger_edge.serve.answers import Token, usage
from hamburger_edge.serve.conversations import Conversations, ServedPrompt, keep, prompt_of
from hamburger_edge.serve.fields import RefusedError, mistake
from hamburger_edge.serve.jobs import Begun, Ended, Failed, FairQueue, Job, Piece, Reason
from hamburger_edge.serve.metrics import Metrics
from hamburger_edge.support.terminal import note


@dataclass(frozen=True)
class Served:
    """A model with its name, and the queue and conversations that its workers share."""

    name: str
    info: ModelInfo
    is_task: bool  # fine-tuned for single requests
    queue: FairQueue
    conversations: Conversations
    catalogue: Catalogue | None = None  # of the tools that it was tuned with


class Worker:
    def __init__(self, model: Model, served: Served, metrics: Metrics) -> None:
        self.model, self.served, self.metrics = model, served, metrics
        self.job: Job | None = None
        self.stopping = False  # `cancel_all` sets it before it reads `job`, to catch a job just taken
        self._owner = ""  # owner of the model's current cache
        self._thread = threading.Thread(target=self._work, name=f"worker of {served.name}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        while (job := self.served.queue.take()) is not None:
            self.job = job
            if self.stopping:
                job.cancel("shutdown")
            try:
                self._answer(job)
            except InputError as error:
                full = isinstance(error, ContextFullError)
                job.tell(Failed(RefusedError(str(error), code="context_length_exceeded" if full else None)))
            except HamburgerError as error:
                note(f"error: {error}")
                job.tell(Failed(RefusedError(str(error), status=500)))
            except Exception:  # an internal error ends the job, not the worker
                traceback.print_exc(file=sys.stderr)
                job.tell(Failed(mistake()))
            finally:
                self.job = None
        self.model.close()

    def _answer(self, job: Job) -> None:
        if job.reason is not None:
            job.end()
            return
        prompt, stream = self._begin(job)
        with stream:
            job.begin(stream)
            job.tell(Begun())
            self._tell(job, stream)
        self._count(stream)
        if self.model.inference.engine.ledger.slots:
            by_stop = stream.finish_reason == "stop" and bool(job.request.settings.stop)
            other = by_stop or stream.reverted  # the text is not that of the generated tokens
            answer = None if other or not stream.stats.macro_steps else stream.text
            keep(self.served.conversations, self.model.inference.engine, job.owner, prompt, answer)
        if job.reason is not None:
            self.metrics.add("cancelled_total", model=self.served.name, reason=job.reason)
            job.end()
        else:
            finish = stream.finish_reason or "cancelled"
            used = usage(stream.stats, self.model.inference.engine.ledger.tokens)
            known = stream.certainty is not None or stream.unsure
            certainty = (stream.certainty, stream.unsure) if known else None
            job.tell(Ended(stream.text, finish, used, certainty))

    def _begin(self, job: Job) -> tuple[ServedPrompt, Stream]:
        """Load the cache that shares the most slots with the prompt, and start the answer."""
        engine, settings = self.model.inference.engine, job.request.settings
        if self._owner != job.owner:  # cache hits must not reveal other owners' text
            engine.keep([])
            self._owner = job.owner
        prompt = prompt_of(self.model, job.request, self.served.conversations, job.owner)
        merged = not settings.decoding.exact
        here = engine.ledger.match(prompt.groups[:-1], merged=merged).slots
        kept, slots = self.served.conversations.nearest(job.owner, prompt.groups[:-1], merged)
        if kept is not None and slots > here:
            engine.fill(kept.groups[: kept.slots], kept.snapshot, None)
        return prompt, self.model.inference.answer(prompt.groups, settings)

    def _tell(self, job: Job, stream: Stream) -> None:
        engine, name = self.model.inference.engine, self.served.name
        began = time.monotonic()
        for number, chunk in enumerate(stream):
            now = time.monotonic()
            if not chunk.tokens:
                continue
            if number == 0:
                self.metrics.observe("time_to_first_token_seconds", now - job.began, model=name)
            else:
                self.metrics.observe("step_seconds", now - began, model=name)
            self.metrics.observe("tokens_per_step", len(chunk.tokens), model=name)
            began = now
            unread = engine.unread
            step = {
                "tokens": len(chunk.tokens),
                "slots": engine.ledger.slots + len(unread),
                "slots_uncompressed": engine.ledger.tokens + sum(map(len, unread)),
            }
            job.tell(Piece(chunk.text, step, self._tokens(job, chunk)))

    def _tokens(self, job: Job, chunk: Chunk) -> tuple[Token, ...] | None:
        if not job.request.logprobs:
            return None
        ends = self.model.info.eos_ids
        text = self.model.tokenizer.token_bytes
        return tuple(
            Token(text(token), probability, [(text(likely.token), likely.logprob) for likely in top])
            for token, probability, top in zip(
                chunk.tokens, chunk.probabilities, chunk.top_probabilities, strict=True
            )
            if token not in ends
        )

    def _count(self, stream: Stream) -> None:
        ledger, name = self.model.inference.engine.ledger, self.served.name
        for counted in ("prompt_tokens", "reused_tokens", "tokens", "macro_steps", "slots"):
            self.metrics.add(f"{counted}_total", getattr(stream.stats, counted), model=name)
        self.metrics.add("slots_saved_total", ledger.tokens - ledger.slots, model=name)


class Pool:
    """All models with their workers."""

    def __init__(
        self,
        bundles: Sequence[tuple[str, Callable[[], Model]]],
        *,
        workers: int = 1,
        queue: int = 64,
        sessions: int = 8,
    ) -> None:
        self.metrics = Metrics()
        self.served: dict[str, Served] = {}
        self._workers: list[Worker] = []
        models: list[Model] = []
        try:
            for name, load in bundles:
                loaded = [load() for _ in range(workers)]
                models += loaded
                first = loaded[0]
                self.served[name] = Served(
                    *(name, first.info, first.template.is_task, FairQueue(queue), Conversations(sessions)),
                    first.tools,
                )
                self._workers += [Worker(model, self.served[name], self.metrics) for model in loaded]
        except BaseException:
            self.close()
            for model in models:
                model.close()
            raise

    def find(self, name: str | None) -> Served:
        """Return a model by name; None: the first model."""
        served = next(iter(self.served.values())) if name is None else self.served.get(name)
        if served is None:
            known = ", ".join(self.served)
            raise RefusedError(
                f"there is no model {name!r:.80} here (there is: {known})",
                "model",
                status=404,
                code="model_not_found",
            )
        return served

    def recommends(self, name: str | None) -> Recommended:
        return self.find(name).info.recommended

    def catalogue(self, name: str | None) -> Catalogue | None:
        return self.find(name).catalogue

    def submit(self, job: Job) -> Served:
        served = self.find(job.request.model)
        if (text := job.request.shown) is not None:  # no worker is needed
            job.tell(Begun())
            job.tell(Ended(text, "stop", usage(Stats(), 0), None))
        else:
            served.queue.put(job, self._retry_after(served))
        return served

    def cancel(self, job: Job, reason: Reason) -> None:
        job.cancel(reason)
        if self.find(job.request.model).queue.drop(job):
            job.end()

    def cancel_all(self, reason: Reason) -> None:
        """Close all queues and cancel all jobs, waiting and running."""
        for served in self.served.values():
            for job in served.queue.close():
                job.cancel(reason)
                job.end()
        for worker in self._workers:
            worker.stopping = True
            if (running := worker.job) is not None:
                running.cancel(reason)

    def close(self) -> None:
        self.cancel_all("shutdown")
        for worker in self._workers:
            worker.join()
        for served in self.served.values():
            served.conversations.clear()

    def gauges(self) -> dict[str, dict[Any, float]]:
        gauges: dict[str, dict[Any, float]] = {}
        for name, served in self.served.items():
            labels = (("model", name),)
            of = [worker for worker in self._workers if worker.served is served]
            gauges.setdefault("queue_length", {})[labels] = len(served.queue)
            gauges.setdefault("workers", {})[labels] = len(of)
            gauges.setdefault("workers_busy", {})[labels] = sum(worker.job is not None for worker in of)
            gauges.setdefault("sessions", {})[labels] = len(served.conversations)
            gauges.setdefault("sessions_bytes", {})[labels] = served.conversations.bytes
        return gauges

    def _retry_after(self, served: Served) -> int:
        """Return `min(60, 1 + waiting jobs // workers)` seconds."""
        workers = sum(worker.served is served for worker in self._workers)
        return min(60, 1 + len(served.queue) // max(1, workers))
