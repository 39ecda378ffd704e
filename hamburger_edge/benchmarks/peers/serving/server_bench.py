"""One run: all servers are up, and each scenario sends the same requests to each server in rotation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hamburger_edge.benchmarks.contender import Source, installed
from hamburger_edge.benchmarks.peers import peer_files
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
from hamburger_edge.benchmarks.peers.serving.servers import Contestant, llama_cpp, ours, started
from hamburger_edge.benchmarks.speed.interleave import interleave
from hamburger_edge.benchmarks.speed.speed_plan import TEXTS
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.support.terminal import ProgressBar, note

TURNS = ("What was it about?", "Say it in one sentence.", "And in three words?", "Thank you. Anything else?")
SYSTEMS = ("You are a helpful assistant.", "You are a careful librarian.")


@dataclass(frozen=True)
class ServingPlan:
    tokens: int = 32  # length of each answer
    rounds: int = 5
    client_requests: int = 2  # per round
    background: int = len(TEXTS)  # number of texts in the system message of alternating conversations
    eos_ids: tuple[int, ...] = ()  # biased by -100, so that all answers have the same length
    base: str = ""
    threads: int = 1


def serving_plan(
    manifest: Manifest, threads: int, *, tokens: int | None, rounds: int | None, quick: bool
) -> ServingPlan:
    given = {"tokens": tokens, "rounds": rounds}
    return ServingPlan(
        eos_ids=manifest.model.eos_ids,
        background=len(TEXTS) if _slots(manifest) >= 1024 else 1,
        base=manifest.base.name,
        threads=threads,
        **{
            **({"rounds": 1, "each": 1} if quick else {}),
            **{name: value for name, value in given.items() if value is not None},
        },
    )


def _slots(manifest: Manifest) -> int:
    return manifest.cache_slots or min(2048, manifest.model.context_length)


def compared(
    bundle: Path,
    manifest: Manifest,
    checkpoint: Path | None,
    plan: ServingPlan,
    *,
    build: bool,
    progress: ProgressBar,
) -> ServingReport:
    """Measure our server, and llama-cpp-python's if it is installed and has a checkpoint to build from."""
    threads, slots = plan.threads, _slots(manifest)
    servers = [ours(bundle, threads, slots), ours(bundle, threads, slots, "serve@1", mode="plain")]
    if threads > 1:
        servers.append(ours(bundle, threads, slots, "serve, 2 workers", workers=2))
    if checkpoint is None or not installed("llama_cpp") or not installed("fastapi"):
        note("llama.cpp: left out: run  pip install '.[bench]'  in the checkout, and name  --against")
    else:
        forms = peer_files.folder_of(checkpoint)
        precision = None if manifest.gguf is None else manifest.gguf.precision.base
        own = manifest.precision.base
        source = Source(bundle, checkpoint, own, threads, slots, precision, forms, build)
        file = peer_files.gguf(source)
        servers += [llama_cpp(file, threads, slots, cache=cache) for cache in (False, True)]
    return measure(servers, plan, progress=progress)


def measure(
    contestants: Sequence[Contestant], plan: ServingPlan, *, progress: ProgressBar | None = None
) -> ServingReport:
    failed: dict[str, str] = {}
    measured: dict[str, dict[str, list[Burst]]] = {}
    with ExitStack() as stack:
        ports: dict[str, int] = {}
        for contestant in contestants:
            try:
                ports[contestant.name] = stack.enter_context(started(contestant))
            except Exception as error:
                failed[contestant.name] = str(error)
        fields = {
            contestant.name: {
                "max_tokens": plan.tokens,
                "logit_bias": {str(token): -100 for token in plan.eos_ids},
                **contestant.fields,
            }
            for contestant in contestants
        }

        def one(scenario: str, name: str, number: int) -> Burst:
            if progress:
                progress(scenario, number, plan.rounds)
            if scenario != ALTERNATING:
                clients = range(CLIENTS[scenario])
                requests = [
                    [_request(number, client, n) for n in range(plan.client_requests)] for client in clients
                ]
                return burst(ports[name], requests, fields[name])
            beginnings = [_beginning(number, system, plan.background) for system in SYSTEMS]
            return alternate(ports[name], beginnings, TURNS, fields[name])

        def give_up(name: str, error: Exception) -> None:
            failed[name] = str(error)
            ports.pop(name, None)

        for scenario in SCENARIOS:
            measured[scenario] = interleave(
                [
                    contestant.name
                    for contestant in contestants
                    if contestant.name in ports and scenario in contestant.scenarios
                ],
                partial(one, scenario),
                rounds=plan.rounds,
                failed=give_up,
            )
    for name, reason in failed.items():
        note(f"{name}: left out: {reason}")
    return ServingReport(plan.base, plan.threads, plan.tokens, plan.client_requests, measured, failed)


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
