"""Bodies of the largest size, made to take time by its square: read within a limit that kills."""

from __future__ import annotations

import json
import resource

from hamburger_edge.loop.dial import UNMEASURED
from hamburger_edge.serve.fields import RefusedError, decoded
from hamburger_edge.serve.requests import RequestLimits, read_chat

SECONDS = 30  # of one core, for all of them
PAIRS = ",".join(f'"{number}":0' for number in range(130_000))
PIECES = [{"role": "user", "content": "x" * 1900} for _ in range(512)]
BOMBS = {
    "the last name twice": f'{{{PAIRS},"130000":0,"130000":0}}',
    "one turn in many messages": json.dumps({"messages": PIECES}),
}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    for body in BOMBS.values():
        try:
            read_chat(decoded(body.encode()), lambda _: UNMEASURED, RequestLimits())
            print("taken")
        except RefusedError as refused:
            print(refused.message)


if __name__ == "__main__":
    main()
