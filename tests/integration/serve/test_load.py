"""Under load each client gets its own answer, and the server's memory stays constant."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest
from helpers.places import PATIENCE
from helpers.serving import Program, question, served, until

from hamburger_edge import load

pytestmark = pytest.mark.slow

CLIENTS, REQUESTS = 64, 20
PROMPTS = (
    *("What is the capital of Norway?", "Count from 3 to 12.", "List four animals.", "What is 7 plus 8?"),
    *("What is the capital of Italy?", "Count from 5 to 9.", "What is 3 plus 4?", "List three colours."),
)
RUBBISH: dict[str, tuple[bytes, int]] = {  # body and status
    "no JSON": (b'{"messages": [', 400),
    "wrong types": (json.dumps(question(temperature="hot")).encode(), 400),
    "unknown field": (json.dumps(question(loudness=3)).encode(), 400),
    "too large": (b'{"messages": "' + b"x" * (10 << 20) + b'"}', 413),
}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def tiny(exported_tiny: Callable[..., Path]) -> Path:
    return exported_tiny("int8")


@pytest.fixture(scope="module")
def alone(tiny: Path) -> dict[str, str]:
    """Each prompt's answer without other clients."""
    with load(tiny, threads=1) as model:
        return {text: model.generate(text, max_tokens=24, reuse_prefix=False).text for text in PROMPTS}


async def ask(client: httpx.AsyncClient, text: str, *, stream: bool) -> str:
    response = await client.post(CHAT, json=question(text, stream=stream, max_tokens=24))
    assert response.status_code == 200, response.text
    if not stream:
        return str(response.json()["choices"][0]["message"]["content"])
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines)


async def hang_up(client: httpx.AsyncClient, text: str) -> None:
    """Close the connection in the middle of the answer."""
    body = question(text, stream=True, max_tokens=24)
    async with client.stream("POST", CHAT, json=body) as response:
        await anext(response.aiter_lines())


async def send_rubbish(client: httpx.AsyncClient, kind: str) -> None:
    body, status = RUBBISH[kind]
    response = await client.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert response.status_code == status, kind


async def one_client(
    client: httpx.AsyncClient, number: int, alone: dict[str, str], counts: Counter[str]
) -> None:
    draw = random.Random(number)
    for _ in range(REQUESTS):
        kind, text = draw.random(), draw.choice(PROMPTS)
        if kind < 1 / 3:
            await hang_up(client, text)
            counts["hung up"] += 1
        elif kind < 1 / 3 + 1 / 10:
            name = draw.choice(sorted(RUBBISH))
            await send_rubbish(client, name)
            counts[name] += 1
        else:
            assert await ask(client, text, stream=draw.random() < 0.5) == alone[text]
            counts["answered"] += 1


async def warm(client: httpx.AsyncClient) -> None:
    """Fill the workers' memory of conversations, and send large bodies."""
    for _ in range(3):
        await asyncio.gather(*(ask(client, text, stream=False) for text in PROMPTS))
    await asyncio.gather(*(send_rubbish(client, "too large") for _ in range(8)))


def metric(program: Program, name: str) -> float:
    text = httpx.get(f"http://127.0.0.1:{program.port}/metrics", trust_env=False).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name}{{"))


def test_answers_and_memory_stay_the_same_under_load(tiny: Path, alone: dict[str, str]) -> None:
    counts: Counter[str] = Counter()

    async def load_it(program: Program) -> None:
        memory = psutil.Process(program.process.pid).memory_info
        url, limits = f"http://127.0.0.1:{program.port}", httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=url, limits=limits, timeout=PATIENCE, trust_env=False
        ) as client:
            await warm(client)
            before = memory().rss
            async with asyncio.TaskGroup() as group:
                for number in range(CLIENTS):
                    group.create_task(one_client(client, number, alone, counts))
            await asyncio.to_thread(until, lambda: metric(program, "hamburger_workers_busy") == 0)
            assert metric(program, "hamburger_workers") == 2
            assert metric(program, "hamburger_queue_length") == 0
            for text in PROMPTS:
                assert await ask(client, text, stream=False) == alone[text]
            assert memory().rss < 1.1 * before, (before, memory().rss, counts)

    with served(tiny, "--workers", "2", "--threads", "1", "--queue", "256") as program:
        asyncio.run(load_it(program))
    assert counts.total() == CLIENTS * REQUESTS
    assert min(counts[name] for name in (*RUBBISH, "hung up", "answered")) > 0
