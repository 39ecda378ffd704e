"""`bench`: our runtimes and other programs on the same weights, prompts and threads.

choose --> prepare (build files for peers, once) --> load, each in its own process
       --> interleave: A B C A B C ..., after a warm-up round
       --> score: quality of our answers under the plain base
       --> curve: long answers in rotation, ours plain and in groups, and peers' --> SpeedReport
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from hamburger_edge.benchmarks.contender import Program, Source, TimedTurn
from hamburger_edge.benchmarks.speed.bench_report import shared_facts
from hamburger_edge.benchmarks.speed.curve import CHUNK, curve
from hamburger_edge.benchmarks.speed.interleave import all_ratios
from hamburger_edge.benchmarks.speed.our_speed import PLAIN
from hamburger_edge.benchmarks.speed.running import Measured, Members, Running, Start, duration, start
from hamburger_edge.benchmarks.speed.speed_plan import RUNTIMES, BenchPlan, compared, full, pairs
from hamburger_edge.benchmarks.speed.speed_report import SpeedReport, SpeedRow
from hamburger_edge.errors import HamburgerError
from hamburger_edge.evaluation import machine
from hamburger_edge.support.progress import Progress, no_progress


class Bench:
    """One run: its programs, its prompts and its measurements."""

    def __init__(
        self,
        source: Source,
        plan: BenchPlan,
        prompts: Sequence[Sequence[int]],
        *,
        progress: Progress = no_progress,
        start: Start = start,
        clock: Callable[[], float] = perf_counter,
    ):
        self.source, self.plan, self.prompts = source, plan, prompts
        self.progress, self.start, self.clock = progress, start, clock
        self.running = Running(
            source,
            only=plan.only,
            random=plan.random,
            seconds=plan.seconds,
            progress=progress,
            start=start,
            clock=clock,
        )

    def run(self, programs: Mapping[str, Program]) -> SpeedReport:
        running = self.running
        try:
            chosen = running.choose(programs)
            members = running.open(chosen)
            turns = running.take_turns(members, self.plan.rounds, self._turn)
            processes = running.processes
            usage = {name: process.usage() for name, process in processes.items()}  # scoring raises the peak
            weights = {name: process.weight_bytes() for name, process in processes.items()}
            scores, costs = self._score(turns, members), self._curve(chosen)
        finally:
            running.close()
        self.progress("measuring memory bandwidth", 0, 0, "")
        speed = machine.bandwidth(self.source.threads, min(size.macro for size in weights.values()))
        facts = shared_facts(self.source, running.skipped)
        facts["machine"] |= {name: round(value) for name, value in speed.items()}
        return SpeedReport(
            **facts,
            results=[
                SpeedRow.of(
                    name,
                    turns[name],
                    running.facts[program],
                    weights[program],
                    usage[program],
                    speed,
                    scores.get(name),
                )
                for name, (program, _) in members.items()
                if name in turns
            ],
            ratios=all_ratios(
                {name: [turn.decode_tps for turn in timed] for name, timed in turns.items()},
                pairs(list(members)),
            ),
            curve=costs,
        )

    def _turn(self, process: Measured, variant: str, number: int) -> TimedTurn:
        return process.turn(self.prompts[number % len(self.prompts)], self.plan.tokens, variant)

    def _score(
        self, turns: Mapping[str, list[TimedTurn]], members: Members
    ) -> dict[str, tuple[float, float]]:
        """Return the mean nats per token and the agreement of our answers under the plain base."""
        scores = {}
        for done, (name, (program, _)) in enumerate(members.items()):
            if program not in RUNTIMES or name not in turns or self.plan.random:
                continue
            self.progress("scoring", done, len(members), "")
            try:
                figures = [
                    self.running.processes[program].ask(
                        "score", self.prompts[number % len(self.prompts)], turn.tokens
                    )
                    for number, turn in enumerate(turns[name][: len(self.prompts)], 1)  # each prompt once
                ]
            except HamburgerError as error:  # the timings stay in the report
                self.running.skip(f"{name}: quality", error)
                continue
            scores[name] = (
                sum(f[0] for f in figures) / len(figures),
                sum(f[1] for f in figures) / len(figures),
            )
        return scores

    def _curve(self, chosen: Mapping[str, Program]) -> list[dict[str, Any]]:
        """Measure cost against length: our first runtime in several modes, and peers that continue.

        Each mode but plain decoding has a process of its own.
        """
        runtime = next((name for name in RUNTIMES if name in self.running.processes), None)
        longest = min(self.plan.longest, self.source.slots - len(self.prompts[0]))
        if runtime is None or longest < CHUNK:
            return []
        ours = chosen[runtime]
        others = {variant: self.start(runtime, ours, self.source) for variant in compared(ours.variants)}
        began = 0.0

        def go_on(tokens: int) -> bool:
            nonlocal began
            if not tokens:  # start the clock after the prefills
                began = self.clock()
            spent = self.clock() - began
            left = spent / max(1, tokens) * (longest - tokens)
            remark = f"{duration(left)} left" if spent > 1 else ""
            self.progress("cost against length", tokens, longest, remark)
            return not self.running.out_of_time(spent * CHUNK / max(CHUNK, tokens))

        def failed(name: str, error: HamburgerError) -> None:
            self.running.skip(f"{name}: cost against length", error)

        try:
            runners = {full(runtime, PLAIN): (self.running.processes[runtime].ask, PLAIN)}
            for variant, process in others.items():
                process.load()
                runners[full(runtime, variant)] = process.ask, variant
            for name, program in chosen.items():
                if program.continues and name in self.running.processes:
                    runners[name] = self.running.processes[name].ask, ""
            return curve(runners, self.prompts[0], longest, go_on=go_on, failed=failed)
        except HamburgerError as error:  # a process did not load; `curve` reports other failures
            failed(runtime, error)
            return []
        finally:
            for process in others.values():
                process.close()
