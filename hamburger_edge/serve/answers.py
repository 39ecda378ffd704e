"""Build response bodies in OpenAI's format, as plain data.

There are three extensions. A chunk of a stream is one macro step and has the field `step`. `usage` has
`macro_steps`, `slots` and `slots_uncompressed`. The choice, in a stream that of the last chunk, has
`certainty` and `unsure` if the model's certainty was measured, `unsure` if a correction was cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hamburger_edge.loop.stats import Stats
from hamburger_edge.loop.step import FinishReason
from hamburger_edge.serve.fields import RefusedError
from hamburger_edge.serve.tools import ToolCall

DONE = b"data: [DONE]\n\n"
_FINISH = {"eos": "stop", "stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}


@dataclass(frozen=True)
class Token:
    """A generated token, for `logprobs`."""

    text: bytes
    probability: float
    top: Sequence[tuple[bytes, float]] = ()  # the likeliest tokens at this place with their log probabilities


@dataclass(frozen=True)
class AnswerChunks:
    """The fields that all chunks of one answer share, and methods that build the chunks."""

    id: str
    created: int
    model: str
    fingerprint: str
    chat: bool

    def whole(
        self,
        text: str,
        finish: FinishReason,
        usage: dict[str, Any],
        *,
        calls: Sequence[ToolCall] | None = None,
        logprobs: Sequence[Token] | None = None,
        certainty: tuple[float | None, bool] | None = None,
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": _finish(finish, calls), **_sure(certainty)}
        if self.chat:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if calls is not None:
                message |= {"content": None, "tool_calls": self._calls(calls)}
            choice |= {"message": message, "logprobs": self._logprobs(logprobs)}
        else:
            choice |= {"text": text, "logprobs": self._logprobs(logprobs)}
        return self._body([choice]) | {"usage": usage}

    def opening(self) -> dict[str, Any]:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str, step: dict[str, Any], logprobs: Sequence[Token] | None) -> dict[str, Any]:
        return self._chunk({"content": text}, logprobs=logprobs) | {"step": step}

    def called(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        listed = [{"index": index, **call} for index, call in enumerate(self._calls(calls))]
        return self._chunk({"tool_calls": listed})

    def closing(
        self,
        finish: FinishReason,
        calls: Sequence[ToolCall] | None,
        certainty: tuple[float | None, bool] | None = None,
    ) -> dict[str, Any]:
        chunk = self._chunk({} if self.chat else {"content": ""}, finish=_finish(finish, calls))
        chunk["choices"][0] |= _sure(certainty)
        return chunk

    def used(self, usage: dict[str, Any]) -> dict[str, Any]:
        return self._body([], chunk=True) | {"usage": usage}

    def _chunk(
        self, delta: dict[str, Any], *, finish: str | None = None, logprobs: Sequence[Token] | None = None
    ) -> dict[str, Any]:
        content = {"delta": delta} if self.chat else {"text": delta["content"]}
        listed = self._logprobs(logprobs)
        return self._body([{"index": 0, **content, "logprobs": listed, "finish_reason": finish}], chunk=True)

    def _body(self, choices: list[dict[str, Any]], *, chunk: bool = False) -> dict[str, Any]:
        kind = f"chat.completion{'.chunk' if chunk else ''}" if self.chat else "text_completion"
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _calls(self, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{self.id.partition('-')[2]}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(calls)
        ]

    def _logprobs(self, tokens: Sequence[Token] | None) -> dict[str, Any] | None:
        if tokens is None:
            return None
        texts = [_text(token.text) for token in tokens]
        logs = [math.log(max(token.probability, 1e-300)) for token in tokens]
        if not self.chat:
            tops = [{_text(text): log for text, log in reversed(token.top)} for token in tokens]
            top = tops if any(tops) else None
            return {"tokens": texts, "token_logprobs": logs, "top_logprobs": top, "text_offset": None}
        content = [
            _logprob(token.text, log) | {"top_logprobs": [_logprob(*likely) for likely in token.top]}
            for log, token in zip(logs, tokens, strict=True)
        ]
        return {"content": content, "refusal": None}


def usage(stats: Stats, slots_uncompressed: int) -> dict[str, Any]:
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.tokens,
        "total_tokens": stats.prompt_tokens + stats.tokens,
        "prompt_tokens_details": {"cached_tokens": stats.reused_tokens},
        "macro_steps": stats.macro_steps,
        "slots": stats.slots,
        "slots_uncompressed": slots_uncompressed,
    }


def error(refused: RefusedError) -> dict[str, Any]:
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = "server_error" if refused.status >= 500 else kinds.get(refused.status, "invalid_request_error")
    return {"error": {"message": refused.message, "type": kind, "param": refused.field, "code": refused.code}}


def event(data: dict[str, Any]) -> bytes:
    """Encode a server-sent event."""
    return b"data: " + encoded(data) + b"\n\n"


def encoded(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _text(token: bytes) -> str:
    return token.decode("utf-8", errors="replace")


def _logprob(token: bytes, log: float) -> dict[str, Any]:
    return {"token": _text(token), "logprob": log, "bytes": list(token)}


def _sure(certainty: tuple[float | None, bool] | None) -> dict[str, Any]:
    if certainty is None:
        return {}
    value, unsure = certainty
    return {**({} if value is None else {"certainty": value}), "unsure": unsure}


def _finish(finish: FinishReason, calls: Sequence[ToolCall] | None) -> str:
    return "tool_calls" if calls is not None else _FINISH[finish]
