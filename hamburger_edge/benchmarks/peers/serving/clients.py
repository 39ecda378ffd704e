"""Clients of a server: each sends a request, reads the whole stream, and sends its next request."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from hamburger_edge.errors import HamburgerError

CLIENTS = {"1 client": 1, "4 clients": 4, "16 clients": 16}
ALTERNATING = "2 conversations in turn"
SCENARIOS = (*CLIENTS, ALTERNATING)

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class ClientAnswer:
    first_s: float  # from the start to the first text
    whole_s: float
    text: str


@dataclass(frozen=True)
class Burst:
    """Results of one round with parallel clients, or with alternating conversations."""

    requests_per_s: float
    first_s: tuple[float, ...]  # of each request


def ask(port: int, messages: Messages, fields: Mapping[str, Any]) -> ClientAnswer:
    body = json.dumps({"messages": messages, "stream": True, "temperature": 0, **fields})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began = perf_counter()
    first, text, finish = None, "", None
    try:
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise HamburgerError(f"answered {response.status}: {response.read()[:200]!r}")
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise HamburgerError(f"answered {chunk['error']}")
            [choice] = chunk["choices"]
            finish = choice["finish_reason"] or finish
            if content := choice["delta"].get("content"):
                text += content
                first = first or perf_counter()
    finally:
        connection.close()
    end = perf_counter()
    if finish != "length":  # requests per second are comparable only at equal length
        raise HamburgerError(f"an answer ended by {finish} after {len(text)} characters: it was to be longer")
    return ClientAnswer((first or end) - began, end - began, text)


def burst(port: int, clients: Sequence[Sequence[Messages]], fields: Mapping[str, Any]) -> Burst:
    """Run one parallel client per list of requests."""
    answers: list[ClientAnswer] = []
    failed: list[Exception] = []

    def client(requests: Sequence[Messages]) -> None:
        try:
            for messages in requests:
                answers.append(ask(port, messages, fields))
        except Exception as error:  # raised below, in the measuring thread
            failed.append(error)

    threads = [threading.Thread(target=client, args=(requests,)) for requests in clients]
    began = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return Burst(len(answers) / (perf_counter() - began), tuple(answer.first_s for answer in answers))


def alternate(
    port: int, beginnings: Sequence[Messages], turns: Sequence[str], fields: Mapping[str, Any]
) -> Burst:
    """Alternate between conversations, one turn each. First turns, which no cache can hold, do not count."""
    talks = [list(messages) for messages in beginnings]
    counted: list[ClientAnswer] = []
    for number, text in enumerate(turns):
        for messages in talks:
            messages.append({"role": "user", "content": text})
            answer = ask(port, messages, fields)
            messages.append({"role": "assistant", "content": answer.text})
            if number:
                counted.append(answer)
    whole = sum(answer.whole_s for answer in counted)
    return Burst(len(counted) / whole, tuple(answer.first_s for answer in counted))
