"""One run: the servers stand side by side, and everything is asked of all of them in turn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from hamburger_edge.benchmarks.machine import describe
from hamburger_edge.benchmarks.serving.clients import Burst, Messages, alternate, burst
from hamburger_edge.benchmarks.serving.servers import Contestant, started
from hamburger_edge.benchmarks.speed.interleave import Spread, interleave, ratios
from hamburger_edge.benchmarks.speed.prompts import TEXTS
from hamburger_edge.support.tables import table
from hamburger_edge.support.terminal import ProgressBar, note

CLIENTS = (1, 4, 16)
ALTERNATING = "2 conversations in turn"
TURNS = ("What was it about?", "Say it in one sentence.", "And in three words?", "Thank you. Anything else?")
SYSTEMS = ("You are a helpful assistant.", "You are a careful librarian.")


@dataclass(frozen=True)
class ServingPlan:
    tokens: int = 32  # of each answer
    rounds: int = 5
    each: int = 2  # requests of a client in a round
    background: int = len(TEXTS)  # texts that conversations in turn have in mind
    eos_ids: tuple[int, ...] = ()  # never said, so that all answers are as long


@dataclass(frozen=True)
class ServingReport:
    plan: ServingPlan
    measured: dict[str, dict[str, list[Burst]]]  # by scenario, by server
    failed: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": describe(),
            "tokens": self.plan.tokens,
            "failed": self.failed,
            "scenarios": {name: self._scenario(of) for name, of in self.measured.items()},
        }

    def _scenario(self, of: dict[str, list[Burst]]) -> dict[str, Any]:
        speeds = {name: [each.requests_per_s for each in bursts] for name, bursts in of.items()}
        firsts = {name: [statistics.median(each.first_s) for each in bursts] for name, bursts in of.items()}
        peers = [name for name in of if name.startswith("llama.cpp")]
        return {
            name: {
                "requests_per_s": Spread.of(speeds[name]).to_json(),
                "first_text_s": Spread.of(firsts[name]).to_json(),
                "speed_over": {
                    peer: ratios(speeds[name], speeds[peer]).to_json() for peer in peers if peer != name
                },
            }
            for name in of
        }


def measure(
    contestants: Sequence[Contestant], plan: ServingPlan, *, progress: ProgressBar | None = None
) -> ServingReport:
    failed: dict[str, str] = {}
    measured: dict[str, dict[str, list[Burst]]] = {}
    with ExitStack() as stack:
        ports: dict[str, int] = {}
        for each in contestants:
            try:
                ports[each.name] = stack.enter_context(started(each))
            except Exception as error:
                failed[each.name] = str(error)
        fields = {
            each.name: {
                "max_tokens": plan.tokens,
                "logit_bias": {str(token): -100 for token in plan.eos_ids},
                **each.fields,
            }
            for each in contestants
        }

        def one(scenario: int | str, name: str, number: int) -> Burst:
            if progress:
                progress(
                    f"{scenario} clients" if scenario != ALTERNATING else ALTERNATING, number, plan.rounds
                )
            if isinstance(scenario, int):
                asked = [
                    [_request(number, client, n) for n in range(plan.each)] for client in range(scenario)
                ]
                return burst(ports[name], asked, fields[name])
            beginnings = [_beginning(number, system, plan.background) for system in SYSTEMS]
            return alternate(ports[name], beginnings, TURNS, fields[name])

        def give_up(name: str, error: Exception) -> None:
            failed[name] = str(error)
            ports.pop(name, None)

        for scenario in (*CLIENTS, ALTERNATING):
            title = f"{scenario} clients" if isinstance(scenario, int) else scenario
            measured[title] = interleave(
                list(ports), partial(one, scenario), rounds=plan.rounds, failed=give_up
            )
    for name, reason in failed.items():
        note(f"{name}: left out: {reason}")
    return ServingReport(plan, measured, failed)


def tables(report: ServingReport) -> str:
    parts = []
    for title, of in report.to_json()["scenarios"].items():
        rows = [
            [
                name,
                _spread(each["requests_per_s"], 1),
                _spread(each["first_text_s"], 1000),
                *(f"{peer} x{_spread(ratio, 1)}" for peer, ratio in list(each["speed_over"].items())[:1]),
            ]
            for name, each in of.items()
        ]
        width = max(map(len, rows), default=0)
        rows = [[*row, *[""] * (width - len(row))] for row in rows]
        head = [title, "requests a second", "first text, ms", "speed over"][:width]
        parts.append(table([head, *rows]))
    return "\n\n".join(parts)


def _spread(spread: dict[str, float], scale: float) -> str:
    median, q1, q3 = (scale * spread[name] for name in ("median", "q1", "q3"))
    digits = 0 if scale > 1 else 2
    return f"{median:.{digits}f} ({q1:.{digits}f}-{q3:.{digits}f})"


def _request(number: int, client: int, n: int) -> Messages:
    """Of a round, a client and its turn; no two begin alike beyond the system text."""
    text = TEXTS[(number + client + n) % len(TEXTS)]
    return [
        {"role": "system", "content": SYSTEMS[0]},
        {"role": "user", "content": f"Question {number}.{client}.{n}. {text}"},
    ]


def _beginning(number: int, system: str, background: int) -> Messages:
    text = " ".join([f"{system} Conversation {number}. Keep this in mind.", *TEXTS[:background]])
    return [{"role": "system", "content": text}]
