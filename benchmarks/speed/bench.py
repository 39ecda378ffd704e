"""`bench`: our runtimes and what people would otherwise use, on the same weights, prompts and threads.

choose --> prepare (build what peers read, once) --> load, each in its own process
       --> interleave: A B C A B C ..., the first round warms up
       --> curve: long answers side by side, ours plain and in groups and peers'
       --> score: what the groups cost, under the plain base --> SpeedReport
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol

from hamburger_edge.benchmarks import machine
from hamburger_edge.benchmarks.peers.contender import Contender, Facts, Program, Source, TimedTurn
from hamburger_edge.benchmarks.speed.curve import CHUNK, curve
from hamburger_edge.benchmarks.speed.interleave import all_ratios, interleave
from hamburger_edge.benchmarks.speed.ours import PLAIN
from hamburger_edge.benchmarks.speed.plan import RUNTIMES, BenchPlan, full, pairs
from hamburger_edge.benchmarks.speed.process import Process
from hamburger_edge.benchmarks.speed.report import SpeedReport, result
from hamburger_edge.errors import HamburgerError, InputError
from hamburger_edge.support.progress import Progress, unheard


class Measured(Contender, Protocol):
    """A contender that knows what it took: a `Process`, or a test's own."""

    def usage(self) -> tuple[float, float | None]: ...

    def ask(self, method: str, *arguments: Any) -> Any: ...


Start = Callable[[str, Program, Source], Measured]


def start(name: str, program: Program, source: Source) -> Measured:
    return Process(program.adapter, source, program.options)


class Bench:
    """One run: who takes part, who is out and why, and what was measured."""

    def __init__(
        self,
        source: Source,
        plan: BenchPlan,
        prompts: Sequence[Sequence[int]],
        *,
        progress: Progress = unheard,
        start: Start = start,
        clock: Callable[[], float] = perf_counter,
    ):
        self.source, self.plan, self.prompts = source, plan, prompts
        self.progress, self.start, self.clock = progress, start, clock
        self.began = clock()
        self.skipped: list[dict[str, str]] = []
        self.running: dict[str, Measured] = {}  # by program
        self.facts: dict[str, Facts] = {}

    def run(self, programs: Mapping[str, Program]) -> SpeedReport:
        try:
            chosen = self._choose(programs)
            self._open(chosen)
            members = {full(name, v): (name, v) for name in self.running for v in chosen[name].variants}
            if not members:
                raise self._nothing()
            turns = self._interleave(members)
            if not turns:
                raise self._nothing()
            usage = {name: process.usage() for name, process in self.running.items()}  # scoring takes more
            weights = {name: process.weight_bytes() for name, process in self.running.items()}
            scores, costs = self._score(turns, members), self._curve(chosen)
        finally:
            for process in self.running.values():
                process.close()
        self.progress("measuring memory bandwidth", 0, 0, "")
        speed = machine.bandwidth(self.source.threads, min(each.macro for each in weights.values()))
        return SpeedReport(
            machine={**machine.describe(), **{name: round(value) for name, value in speed.items()}},
            versions=machine.versions(),
            base="",
            precision=self.source.precision,
            threads=self.source.threads,
            results=[
                result(
                    name,
                    turns[name],
                    self.facts[program],
                    weights[program],
                    usage[program],
                    speed,
                    scores.get(name),
                )
                for name, (program, _) in members.items()
                if name in turns
            ],
            ratios=all_ratios(
                {name: [turn.decode_tps for turn in each] for name, each in turns.items()},
                pairs(list(members)),
            ),
            skipped=self.skipped,
            curve=costs,
        )

    def _nothing(self) -> InputError:
        reasons = "; ".join(f"{each['name']}: {each['why']}" for each in self.skipped)
        return InputError(f"nothing to measure: {reasons}")

    def skip(self, name: str, why: object) -> None:
        self.skipped.append({"name": name, "why": str(why)})

    def _choose(self, programs: Mapping[str, Program]) -> dict[str, Program]:
        """Those that were asked for and can run here."""
        only, chosen = self.plan.only, {}
        known = {*programs, *(full(n, v) for n, p in programs.items() for v in p.variants)}
        for name in only:
            if name not in known:
                raise InputError(f"--only {name}: unknown (known: {', '.join(sorted(known))})")
        for name, program in programs.items():
            wanted = tuple(v for v in program.variants if not only or {name, full(name, v)} & {*only})
            if not wanted or (self.plan.random and program.needs_checkpoint and name not in only):
                continue
            why = program.missing
            if why is None and program.needs_checkpoint and self.source.checkpoint is None:
                why = "the checkpoint of this bundle is not here: name it with  --against CHECKPOINT"
            if why is not None:
                self._skip_all(name, wanted, why)
                continue
            chosen[name] = replace(program, variants=wanted)
        return chosen

    def _skip_all(self, name: str, variants: Sequence[str], why: object) -> None:
        for variant in variants:
            self.skip(full(name, variant), why)

    def _open(self, chosen: Mapping[str, Program]) -> None:
        """Each builds its files in one process and is loaded in another, whose memory is then its own."""
        for done, (name, program) in enumerate(chosen.items()):
            try:
                if self._out_of_time(0):
                    raise InputError("no time was left for it: give it more")
                if program.needs_checkpoint:
                    self.progress(f"preparing {name}", done, len(chosen), "built once, then kept")
                    builder = self.start(name, program, self.source)
                    try:
                        options = {**program.options, "made": builder.prepare()}
                    finally:
                        builder.close()
                    program = replace(program, options=options)
                self.progress(f"loading {name}", done, len(chosen), "")
                process = self.running[name] = self.start(name, program, self.source)
                self.facts[name] = process.load()
            except HamburgerError as error:
                if name in self.running:
                    self.running.pop(name).close()
                self._skip_all(name, program.variants, error)

    def _interleave(self, members: Mapping[str, tuple[str, str]]) -> dict[str, list[TimedTurn]]:
        plan, total = self.plan, (self.plan.rounds + 1) * len(members)
        done, began = 0, self.clock()
        turns_began: list[float] = []  # of each round

        def measure(name: str, number: int) -> TimedTurn:
            nonlocal done
            if len(turns_began) == number:
                turns_began.append(self.clock())
            program, variant = members[name]
            left = (self.clock() - began) / done * (total - done) if number else None
            remark = "warming up" if left is None else f"{name}, {duration(left)} left"
            self.progress("measuring", done, total, remark)
            done += 1
            prompt = self.prompts[number % len(self.prompts)]
            return self.running[program].turn(prompt, plan.tokens, variant)

        def go_on(rounds: int) -> bool:
            if plan.seconds is None:
                return True
            now = self.clock()
            return now - self.began + (now - began) / (rounds + 1) < plan.seconds

        def failed(name: str, error: Exception) -> None:
            if not isinstance(error, HamburgerError):
                raise error
            self.skip(name, error)
            dead.add(members[name][0])

        dead: set[str] = set()
        turns = interleave(list(members), measure, rounds=plan.rounds, go_on=go_on, failed=failed)
        for program in dead:
            self.running.pop(program).close()
        for name, (program, variant) in members.items():
            if program in dead and name not in {each["name"] for each in self.skipped}:
                self.skip(
                    name, f"its program failed at another of its variants, and {variant or 'it'} with it"
                )
        return {name: each for name, each in turns.items() if members[name][0] not in dead}

    def _score(
        self, turns: Mapping[str, list[TimedTurn]], members: Mapping[str, tuple[str, str]]
    ) -> dict[str, tuple[float, float]]:
        """Nats a token, and agreement, of our answers under the plain base."""
        scores = {}
        for done, (name, (program, _)) in enumerate(members.items()):
            if program not in RUNTIMES or name not in turns or self.plan.random:
                continue
            self.progress("scoring", done, len(members), "")
            try:
                found = [
                    self.running[program].ask("score", self.prompts[number % len(self.prompts)], turn.tokens)
                    for number, turn in enumerate(turns[name][: len(self.prompts)], 1)  # each prompt once
                ]
            except HamburgerError as error:  # what was measured stays
                self.skip(f"{name}: quality", error)
                continue
            scores[name] = (sum(f[0] for f in found) / len(found), sum(f[1] for f in found) / len(found))
        return scores

    def _curve(self, chosen: Mapping[str, Program]) -> list[dict[str, Any]]:
        """Our first runtime plainly and in groups, each in a process of its own, beside peers that can."""
        runtime = next((name for name in RUNTIMES if name in self.running), None)
        longest = min(self.plan.longest, self.source.slots - len(self.prompts[0]))
        if runtime is None or longest < CHUNK:
            return []
        second = self.start(runtime, chosen[runtime], self.source)
        began = 0.0

        def go_on(tokens: int) -> bool:
            nonlocal began
            if not tokens:  # what it took to get here is no stretch
                began = self.clock()
            spent = self.clock() - began
            left = spent / max(1, tokens) * (longest - tokens)
            remark = f"{duration(left)} left" if spent > 1 else ""
            self.progress("cost against length", tokens, longest, remark)
            return not self._out_of_time(spent * CHUNK / max(CHUNK, tokens))

        def failed(name: str, error: HamburgerError) -> None:
            self.skip(f"{name}: cost against length", error)

        try:
            second.load()
            runners = {
                full(runtime, PLAIN): (self.running[runtime].ask, PLAIN),
                full(runtime, self.plan.compressed): (second.ask, self.plan.compressed),
            }
            for name, program in chosen.items():
                if program.continues and name in self.running:
                    runners[name] = self.running[name].ask, ""
            return curve(runners, self.prompts[0], longest, go_on=go_on, failed=failed)
        except HamburgerError as error:  # the second process did not load; `curve` tells of the others
            failed(runtime, error)
            return []
        finally:
            second.close()

    def _out_of_time(self, next_s: float) -> bool:
        limit = self.plan.seconds
        return limit is not None and self.clock() - self.began + next_s > limit


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
