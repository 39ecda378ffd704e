"""One run: all servers are up, and each scenario sends the same requests to each server in rotation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from hamburger_edge.benchmarks.peers.serving.clients import (
    ALTERNATING,
    CLIENTS,
    SCENARIOS,
    Burst,
    Messages,
    alternate,
    burst,
)
from hamburger_edge.benchmarks.peers.serving.server_report import ServingReport
from hamburger_edge.benchmarks.peers.serving.servers import Contestant, started
from hamburger_edge.benchmarks.speed.interleave import interleave
from hamburger_edge.benchmarks.speed.speed_plan import TEXTS
from hamburger_edge.support.terminal import ProgressBar, note

TURNS = ("What was it about?", "Say it in one sentence.", "And in three words?", "Thank you. Anything else?")
SYSTEMS = ("You are a helpful assistant.", "You are a careful librarian.")


@dataclass(frozen=True)
class ServingPlan:
    tokens: int = 32  # length of each answer
    rounds: int = 5
    each: int = 2  # requests per client and round
    background: int = len(TEXTS)  # number of texts in the system message of alternating conversations
    eos_ids: tuple[int, ...] = ()  # biased by -100, so that all answers have the same length
    base: str = ""
    threads: int = 1


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

        def one(scenario: str, name: str, number: int) -> Burst:
            if progress:
                progress(scenario, number, plan.rounds)
            if scenario != ALTERNATING:
                clients = range(CLIENTS[scenario])
                asked = [[_request(number, client, n) for n in range(plan.each)] for client in clients]
                return burst(ports[name], asked, fields[name])
            beginnings = [_beginning(number, system, plan.background) for system in SYSTEMS]
            return alternate(ports[name], beginnings, TURNS, fields[name])

        def give_up(name: str, error: Exception) -> None:
            failed[name] = str(error)
            ports.pop(name, None)

        for scenario in SCENARIOS:
            measured[scenario] = interleave(
                [each.name for each in contestants if each.name in ports and scenario in each.scenarios],
                partial(one, scenario),
                rounds=plan.rounds,
                failed=give_up,
            )
    for name, reason in failed.items():
        note(f"{name}: left out: {reason}")
    return ServingReport(plan.base, plan.threads, plan.tokens, plan.each, measured, failed)


def _request(number: int, client: int, n: int) -> Messages:
    """Return request `n` of a client in round `number`. Requests share only the system text as a prefix."""
    text = TEXTS[(number + client + n) % len(TEXTS)]
    return [
        {"role": "system", "content": SYSTEMS[0]},
        {"role": "user", "content": f"Question {number}.{client}.{n}. {text}"},
    ]


def _beginning(number: int, system: str, background: int) -> Messages:
    text = " ".join([f"{system} Conversation {number}. Keep this in mind.", *TEXTS[:background]])
    return [{"role": "system", "content": text}]
