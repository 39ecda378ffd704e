"""Killed work resumes, and a long-running process does not grow.

Here this takes a minute; `make kills KILLS=100` and `make soak SPOKEN=200000` take an hour.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.long_work import WORKS
from helpers.places import PROGRAMS, environment

import hamburger_edge
from hamburger_edge.chat.conversation import Chat
from hamburger_edge.model import Model

pytestmark = pytest.mark.slow

KILLS, SEED = os.environ.get("KILLS"), os.environ.get("SEED", "0")
SPOKEN = int(os.environ.get("SPOKEN", "1500"))  # tokens
GROWTH = 16 << 20  # bytes of memory that a process may still gain after a fifth of its conversations
QUESTIONS = (
    "What is {} plus {}?",
    "Count from {} to {}.",
    "Write the list of {} and {}.",
    "Why is the sky blue, and what has {} to do with {}?",
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
@pytest.mark.parametrize("work", WORKS)
def test_killed_work_resumes(work: str, tmp_path: Path) -> None:
    kills = KILLS or ("20" if work == "export" else "4")
    subprocess.run(
        [sys.executable, PROGRAMS / "killed_work.py", work, kills, SEED, tmp_path],
        check=True,
        env=environment(OMP_NUM_THREADS="1"),
    )


def settings(pick: random.Random) -> dict[str, Any]:
    return {
        "mode": pick.choice(["merge", "merge", "hybrid", "verify"]),
        "confidence": pick.choice([0.5, 0.8, 0.95]),
        "temperature": pick.choice([0.0, 0.8]),
        "seed": pick.randrange(1000),
        "max_tokens": 64,
    }


def ask(chat: Chat, text: str) -> list[int]:
    return [token for chunk in chat.send(text) for token in chunk.tokens]


def converse(unbroken_model: Model, resumed_model: Model, number: int, session: Path) -> int:
    """Return the number of tokens of a conversation that is also saved and resumed after each answer."""
    pick = random.Random(number)
    options = settings(pick)
    unbroken, resumed = unbroken_model.chat(**options), resumed_model.chat(**options)
    tokens = 0
    for _ in range(6):
        question = pick.choice(QUESTIONS).format(pick.randrange(1, 20), pick.randrange(1, 20))
        answer = ask(resumed, question)
        assert answer == ask(unbroken, question)
        tokens += len(answer)
        resumed.save(session)
        resumed = resumed_model.resume(session)
    return tokens


def test_memory_stays_constant_over_conversations(exported_tiny: Callable[..., Path], tmp_path: Path) -> None:
    tiny = exported_tiny("int8")
    memory: list[int] = []  # bytes, after every conversation
    tokens, load = 0, hamburger_edge.load
    with load(tiny, threads=1) as whole, load(tiny, threads=1) as broken:
        while tokens < SPOKEN:
            tokens += converse(whole, broken, len(memory), tmp_path / "talk")
            memory.append(psutil.Process().memory_info().rss)
            print(f"{tokens} tokens, {memory[-1] >> 20} MiB", flush=True)
    settled = memory[len(memory) // 5 :]
    assert max(settled) - settled[0] <= GROWTH
