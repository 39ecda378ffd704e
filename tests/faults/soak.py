"""One process that talks for long: `make soak SPOKEN=200000`.

The same conversations are held twice, in turns: by a model that is left alone, and by one whose conversation
is saved and resumed after every answer. Their texts must be equal, and memory must stay level.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import psutil

import hamburger_edge
from hamburger_edge import export_checkpoint as export
from hamburger_edge.chat.conversation import Chat
from hamburger_edge.model import Model

GROWTH = 16 << 20  # bytes of memory that a process may still gain after a fifth of its tokens
TURNS = 6
QUESTIONS = (
    "What is {} plus {}?",
    "Count from {} to {}.",
    "Write the list of {} and {}.",
    "Why is the sky blue, and what has {} to do with {}?",
)


def settings(pick: random.Random) -> dict[str, object]:
    return {
        "mode": pick.choice(["merge", "merge", "hybrid", "verify"]),
        "confidence": pick.choice([0.5, 0.8, 0.95]),
        "temperature": pick.choice([0.0, 0.8]),
        "seed": pick.randrange(1000),
        "max_tokens": 64,
    }


def question(pick: random.Random) -> str:
    return pick.choice(QUESTIONS).format(pick.randrange(1, 20), pick.randrange(1, 20))


def say(chat: Chat, text: str) -> tuple[str, int]:
    chunks = list(chat.send(text))
    return "".join(chunk.text for chunk in chunks), sum(len(chunk.tokens) for chunk in chunks)


def converse(whole: Model, broken: Model, number: int, place: Path) -> tuple[int, str | None]:
    """(tokens that the broken one said, what differs)"""
    pick = random.Random(number)
    options = settings(pick)
    one, other = whole.chat(**options), broken.chat(**options)  # type: ignore[arg-type]
    tokens = 0
    for turn in range(TURNS):
        asked = question(pick)
        expected, _ = say(one, asked)
        said, count = say(other, asked)
        tokens += count
        if said != expected:
            return tokens, f"conversation {number}, answer {turn}: {said!r} instead of {expected!r}"
        other.save(place)
        other = broken.resume(place)
    return tokens, None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=Path("runs/soak"))
    options = parser.parse_args()
    bundle = options.folder / "bundle"
    if not bundle.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        # int8 rounds by call, so that a text depends on which of its tokens were read together
        export("tiny", bundle, precision="fp32", verify=False)
    memory: list[int] = []  # bytes, after every hundredth of the tokens
    tokens, conversations, began = 0, 0, time.monotonic()
    load = hamburger_edge.load
    with (
        tempfile.TemporaryDirectory() as place,
        load(bundle, threads=1) as whole,
        load(bundle, threads=1) as broken,
    ):
        while tokens < options.tokens:
            count, wrong = converse(whole, broken, conversations, Path(place) / "talk")
            tokens, conversations = tokens + count, conversations + 1
            if wrong is not None:
                print(wrong)
                return 1
            while len(memory) < 100 * tokens // options.tokens:
                memory.append(psutil.Process().memory_info().rss)
                print(
                    f"{tokens} tokens, {memory[-1] >> 20} MiB, {time.monotonic() - began:.0f} s", flush=True
                )
    settled, most = memory[len(memory) // 5], max(memory[len(memory) // 5 :])
    print(
        f"{tokens} tokens in {conversations} conversations, saved and resumed {conversations * TURNS} times: "
        f"texts identical; {settled >> 20} MiB after a fifth, {most >> 20} at most since; "
        f"{time.monotonic() - began:.0f} s"
    )
    return most - settled > GROWTH


if __name__ == "__main__":
    sys.exit(main())
