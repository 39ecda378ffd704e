"""Many clients at once, good and bad: everybody gets what is theirs, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from serving import Program, question, served, until

from hamburger_edge import load

CLIENTS, REQUESTS = 64, 20
PROMPTS = (
    *("What is the capital of Norway?", "Count from 3 to 12.", "List four animals.", "What is 7 plus 8?"),
    *("What is the capital of Italy?", "Count from 5 to 9.", "What is 3 plus 4?", "List three colours."),
)
RUBBISH: dict[str, tuple[bytes, int]] = {  # a body, and how it is answered
    "no JSON": (b'{"messages": [', 400),
    "wrong types": (json.dumps(question(temperature="hot")).encode(), 400),
    "unknown field": (json.dumps(question(loudness=3)).encode(), 400),
    "too large": (b'{"messages": "' + b"x" * (10 << 20) + b'"}', 413),
    "half closed": (b'{"mess', 400),
    "slow": (b"{", 408),
}


@pytest.fixture(scope="module")
def tiny(exported_tiny: Callable[..., Path]) -> Path:
    return exported_tiny("fp32")  # int8 rounds by call: an answer may depend on what was read together


@pytest.fixture(scope="module")
def alone(tiny: Path) -> dict[str, str]:
    """What each prompt is answered by a model that is asked nothing else."""
    with load(tiny, threads=1) as model:
        return {text: model.generate(text, max_tokens=24, reuse_prefix=False).text for text in PROMPTS}


def body_of(text: str, **fields: Any) -> bytes:
    return json.dumps(question(text, **fields, max_tokens=24)).encode()


async def send(port: int, body: bytes, length: int | None = None) -> tuple[Any, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def received(reader: Any, writer: Any) -> tuple[int, bytes]:
    said = await reader.read()
    writer.close()
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def ask(port: int, text: str, *, stream: bool) -> str:
    reader, writer = await send(port, body_of(text, stream=stream))
    status, body = await received(reader, writer)
    assert status == 200, body
    if not stream:
        return str(json.loads(body[body.index(b"{") :])["choices"][0]["message"]["content"])
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines)


async def hang_up(port: int, text: str) -> None:
    """In the middle of the answer."""
    reader, writer = await send(port, body_of(text, stream=True, logit_bias={}))
    while not (line := await reader.readline()).startswith(b"data: ") and line:
        pass
    writer.transport.abort()


async def send_rubbish(port: int, kind: str) -> int:
    body, _ = RUBBISH[kind]
    reader, writer = await send(port, body, 100 if kind in ("half closed", "slow") else None)
    if kind == "half closed":
        writer.write_eof()
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1])


async def one_client(port: int, number: int, alone: dict[str, str], counts: Counter[str]) -> None:
    draw = random.Random(number)
    for _ in range(REQUESTS):
        kind, text = draw.random(), draw.choice(PROMPTS)
        if kind < 1 / 3:
            await hang_up(port, text)
            counts["hung up"] += 1
        elif kind < 1 / 3 + 1 / 10:
            name = draw.choice(sorted(RUBBISH))
            assert await send_rubbish(port, name) == RUBBISH[name][1], name
            counts[name] += 1
        else:
            assert await ask(port, text, stream=draw.random() < 0.5) == alone[text]
            counts["answered"] += 1


async def all_clients(port: int, alone: dict[str, str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(one_client(port, number, alone, counts))
    return counts


def metric(program: Program, name: str) -> float:
    text = httpx.get(f"http://127.0.0.1:{program.port}/metrics", trust_env=False).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name}{{"))


def test_under_load(tiny: Path, alone: dict[str, str]) -> None:
    options = ("--workers", "2", "--threads", "1", "--queue", "256")
    with served(tiny, *options) as program:
        memory = psutil.Process(program.process.pid).memory_info
        asyncio.run(warm(program.port, alone))
        before = memory().rss
        counts = asyncio.run(all_clients(program.port, alone))
        assert counts.total() == CLIENTS * REQUESTS
        assert min(counts[name] for name in (*RUBBISH, "hung up", "answered")) > 0
        until(lambda: metric(program, "hamburger_workers_busy") == 0)
        assert metric(program, "hamburger_workers") == 2
        assert metric(program, "hamburger_queue_length") == 0
        for text in PROMPTS:
            assert asyncio.run(ask(program.port, text, stream=False)) == alone[text]
        assert memory().rss < 1.1 * before, (before, memory().rss, counts)


async def warm(port: int, alone: dict[str, str]) -> None:
    """Both workers, a full memory of conversations, and one body of each kind."""
    for _ in range(3):
        await asyncio.gather(*(ask(port, text, stream=False) for text in PROMPTS))
    await asyncio.gather(*(send_rubbish(port, "too large") for _ in range(8)))


def test_stopped_under_load(tiny: Path) -> None:
    """In the middle of everything: it ends within its time, well, and every client hears something."""

    async def asking(port: int, all_sent: asyncio.Barrier) -> bytes:
        reader, _ = await send(port, body_of("Count from 3 to 12.", stream=True))
        await all_sent.wait()
        return bytes(await reader.read())

    async def stop(program: Program) -> list[bytes]:
        all_sent = asyncio.Barrier(41)
        asked = [asyncio.create_task(asking(program.port, all_sent)) for _ in range(40)]
        await all_sent.wait()
        await asyncio.to_thread(metric, program, "workers")  # is answered: what came before it was taken
        program.process.send_signal(signal.SIGINT)
        return await asyncio.gather(*asked)

    with served(tiny, "--threads", "1", "--grace", "1") as program:
        said = asyncio.run(stop(program))
    ends = Counter(
        "done" if b"[DONE]" in text else "told" if b"shutting down" in text else text[:40] for text in said
    )
    assert ends["done"] + ends["told"] == 40, ends
