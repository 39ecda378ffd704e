"""The routes: OpenAI's API, server status and web pages."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hamburger_edge.loop.dial import MODES, set_dial
from hamburger_edge.serve import answers, pages
from hamburger_edge.serve.bodies import read_body
from hamburger_edge.serve.browser import NOTHING, InBrowser
from hamburger_edge.serve.fields import RefusedError, decoded, mistake
from hamburger_edge.serve.gate import Access, Gate, refusal
from hamburger_edge.serve.jobs import Begun, Ended, Event, Failed, Job, Piece
from hamburger_edge.serve.pool import Pool, Served
from hamburger_edge.serve.requests import RequestLimits, read_chat, read_completion
from hamburger_edge.serve.suggestions import NO_SUGGESTIONS, Suggestions
from hamburger_edge.support.terminal import note

_PATHS = "/v1/chat/completions, /v1/completions, /v1/models, /health and /metrics"  # named in a 404
_NO_STEP = {"tokens": 0}  # `step` of a chunk after the last macro step


@dataclass(frozen=True)
class RequestLog:
    requests: bool = True
    prompts: bool = False  # also log requests and answers in full

    def request(self, request: Request, status: int, seconds: float) -> None:
        if self.requests:
            note(f"{request.method} {request.scope['path']} {status} {1000 * seconds:.0f} ms")

    def said(self, kind: str, text: object) -> None:
        if self.prompts:
            note(f"{kind} {text}")


def application(
    pool: Pool,
    access: Access,
    limits: RequestLimits,
    log: RequestLog,
    in_browser: InBrowser = NOTHING,
    suggestions: Suggestions = NO_SUGGESTIONS,
) -> ASGIApp:
    server = _Server(pool, limits, log, in_browser, suggestions)
    routes = [
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/completions", server.completion, methods=["POST"]),
        Route("/v1/models", server.models),
        Route("/v1/models/{name:path}", server.model),
        Route("/health", server.health),
        Route("/metrics", server.metrics),
        *([Route("/bundles.json", server.bundles)] if in_browser.code else []),
        *pages.routes(in_browser),
    ]
    handlers: Any = {HTTPException: _http_error, RefusedError: _refused, Exception: _mistake}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Gate(app, access, frozenset({*pages.ADDRESSES, *in_browser.code}))


class _Server:
    def __init__(
        self,
        pool: Pool,
        limits: RequestLimits,
        log: RequestLog,
        in_browser: InBrowser,
        suggestions: Suggestions,
    ) -> None:
        self.pool, self.limits, self.log, self.suggestions = pool, limits, log, suggestions
        self.in_browser = in_browser.names
        self.created = int(time.time())

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, chat=True)

    async def completion(self, request: Request) -> Response:
        return await self._answer(request, chat=False)

    async def models(self, request: Request) -> Response:
        listed = [self._described(served) for served in self.pool.served.values()]
        return _json({"object": "list", "data": listed})

    async def model(self, request: Request) -> Response:
        return _json(self._described(self.pool.find(request.path_params["name"])))

    async def bundles(self, request: Request) -> Response:
        return _json({name: self.suggestions.get(name, ()) for name in self.in_browser})

    async def health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        text = self.pool.metrics.text(self.pool.gauges())
        return Response(text, media_type="text/plain; version=0.0.4")

    def _described(self, served: Served) -> dict[str, Any]:
        info = served.info
        advice = info.recommended
        return {
            "id": served.name,
            "object": "model",
            "created": self.created,
            "owned_by": "local",
            "backend": info.backend,
            "precision": info.precision,
            "max_group_tokens": info.max_group_tokens,
            "slots": info.cache_slots,
            "context_length": info.context_length,
            "in_browser": served.name in self.in_browser,
            "recommended": {"mode": advice.mode, "confidence": advice.confidence},
            "confidences": {mode: set_dial({"mode": mode}, advice).confidence for mode in MODES},
            "task": served.is_task,
            "suggestions": self.suggestions.get(served.name, ()),
        }

    async def _answer(self, request: Request, *, chat: bool) -> Response:
        began = time.monotonic()
        try:
            body = await read_body(request, self.limits.body, self.limits.body_seconds)
            data = decoded(body)
            self.log.said("asked:", data)
            recommends, limits = self.pool.recommends, self.limits
            if chat:
                answer_request = read_chat(data, recommends, limits, self.pool.catalogue)
            else:
                answer_request = read_completion(data, recommends, limits)
            owner = request.state.owner
            job = Job(answer_request, owner, owner or (request.client.host if request.client else ""))
            served = self.pool.submit(job)
        except RefusedError as refused:
            self._over(request, refused.status, began)
            raise
        shared = answers.AnswerChunks(
            id=f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            created=int(time.time()),
            model=served.name,
            fingerprint=served.info.fingerprint[:16],
            chat=chat,
        )
        watch = asyncio.create_task(self._watch(request, job))
        try:
            first = await job.next()
            if isinstance(first, Failed):
                raise first.refused
            if answer_request.stream:
                return _Streamed(self._stream(request, job, shared, watch, began))
            response = await self._whole(job, shared)
        except BaseException as error:
            watch.cancel()
            self.pool.cancel(job, "gone")  # no effect after the job has ended
            self._over(request, error.status if isinstance(error, RefusedError) else 500, began)
            raise
        watch.cancel()
        self._over(request, 200, began)
        return response

    async def _whole(self, job: Job, shared: answers.AnswerChunks) -> Response:
        tokens: list[answers.Token] = []
        while True:
            match await job.next():
                case Piece(tokens=new):
                    tokens += new or ()
                case Failed(refused):
                    raise refused
                case Ended(text, finish, usage, certainty):
                    self.log.said("answered:", text)
                    tools = job.request.tools
                    calls = None if tools is None else tools.calls(text)
                    text = text if tools is None else tools.content(text)
                    logprobs = tokens if job.request.logprobs else None
                    return _json(
                        shared.whole(text, finish, usage, calls=calls, logprobs=logprobs, certainty=certainty)
                    )

    async def _stream(
        self,
        request: Request,
        job: Job,
        shared: answers.AnswerChunks,
        watch: asyncio.Task[None],
        began: float,
    ) -> AsyncIterator[bytes]:
        """Yield server-sent events: text after each macro step, tool calls when they are complete."""
        status = 200
        try:
            if shared.chat:
                yield answers.event(shared.opening())
            async for part in self._parts(job, shared):
                yield part
            yield answers.DONE
        except RefusedError as refused:
            status = refused.status
            yield answers.event(answers.error(refused))
        finally:
            watch.cancel()
            self.pool.cancel(job, "gone")  # no effect after the job has ended
            self._over(request, status, began)

    async def _parts(self, job: Job, shared: answers.AnswerChunks) -> AsyncIterator[bytes]:
        tools, sent = job.request.tools, ""
        while True:
            event: Event = await job.next()
            match event:
                case Piece(text, step, tokens):
                    sent += text
                    calling = tools is not None and tools.may_call(sent)
                    yield answers.event(shared.piece("" if calling else text, step, tokens))
                case Failed(refused):
                    raise refused
                case Ended(text, finish, usage, certainty):
                    self.log.said("answered:", text)
                    calls = None if tools is None else tools.calls(text)
                    if calls is not None:
                        yield answers.event(shared.called(calls))
                    elif tools is not None and tools.may_call(text):  # no call, or a cut one
                        if content := tools.content(text):
                            yield answers.event(shared.piece(content, _NO_STEP, None))
                    elif text.startswith(sent) and text != sent:  # an unsure correction may not go on
                        rest = text.removeprefix(sent)
                        yield answers.event(shared.piece(rest, _NO_STEP, None))
                    yield answers.event(shared.closing(finish, calls, certainty))
                    if job.request.include_usage:
                        yield answers.event(shared.used(usage))
                    return
                case Begun():
                    pass

    async def _watch(self, request: Request, job: Job) -> None:
        """Cancel the job when the client disconnects or after `answer_seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.answer_seconds):
                while (await request.receive())["type"] != "http.disconnect":
                    pass
            self.pool.cancel(job, "gone")
            return
        self.pool.cancel(job, "time")

    def _over(self, request: Request, status: int, began: float) -> None:
        self.pool.metrics.add("requests_total", path=request.scope["path"], status=str(status))
        self.log.request(request, status, time.monotonic() - began)


class _Streamed(Response):
    """Send the parts of an iterator as the body. `_watch` detects a disconnected client."""

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self.parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            async for part in self.parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self.parts.aclose()  # type: ignore[attr-defined]


def _json(data: Any) -> Response:
    return Response(answers.encoded(data), media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return refusal(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    method, path = request.method, request.scope["path"]
    message = {
        404: f"there is no {path!r:.100} here: this server has {_PATHS}",
        405: f"{path!r:.100} does not take {method}: use {(error.headers or {}).get('Allow')}",
    }
    refused = RefusedError(message.get(error.status_code, error.detail), status=error.status_code)
    refused.headers = dict(error.headers or {})
    return refusal(refused)


async def _mistake(request: Request, error: Exception) -> Response:
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
    return refusal(mistake())
