"""Choose, open and rotate the programs of one run; record each skipped program with a reason.

choose --> open: build files for peers (once), load each in a separate process --> take_turns: A B A B ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol, TypeVar

from hamburger_edge.benchmarks.contender import Contender, Facts, Program, Source
from hamburger_edge.benchmarks.speed.interleave import interleave
from hamburger_edge.benchmarks.speed.process import Process
from hamburger_edge.benchmarks.speed.speed_plan import full
from hamburger_edge.errors import HamburgerError, InputError
from hamburger_edge.support.progress import Progress, no_progress

T = TypeVar("T")


class Measured(Contender, Protocol):
    """A contender that also reports its load time and memory: a `Process`, or a fake in a test."""

    def usage(self) -> tuple[float, float | None]: ...

    def ask(self, method: str, *arguments: Any) -> Any: ...


Start = Callable[[str, Program, Source], Measured]
Members = dict[str, tuple[str, str]]  # full name -> program and variant


def start(name: str, program: Program, source: Source) -> Measured:
    return Process(program.adapter, source, program.options)


class Running:
    def __init__(
        self,
        source: Source,
        *,
        only: Sequence[str] = (),  # names or programs; empty: all
        random: bool = False,  # random weights: peers take part only if `only` names them
        seconds: float | None = None,  # time limit of the measurement
        progress: Progress = no_progress,
        start: Start = start,
        clock: Callable[[], float] = perf_counter,
    ):
        self.source, self.only, self.random, self.seconds = source, only, random, seconds
        self.progress, self.start, self.clock = progress, start, clock
        self.began = clock()
        self.skipped: list[dict[str, str]] = []
        self.processes: dict[str, Measured] = {}  # program -> process
        self.facts: dict[str, Facts] = {}

    def skip(self, name: str, why: object) -> None:
        self.skipped.append({"name": name, "why": str(why)})

    def nothing(self) -> InputError:
        reasons = "; ".join(f"{row['name']}: {row['why']}" for row in self.skipped)
        return InputError(f"nothing to measure: {reasons}")

    def out_of_time(self, next_s: float) -> bool:
        return self.seconds is not None and self.clock() - self.began + next_s > self.seconds

    def close(self) -> None:
        for process in self.processes.values():
            process.close()

    def choose(self, programs: Mapping[str, Program]) -> dict[str, Program]:
        """Return the requested programs that can run here, and skip the others."""
        only: Sequence[str] = self.only
        chosen: dict[str, Program] = {}
        known = {*programs, *(full(n, v) for n, p in programs.items() for v in p.variants)}
        for name in only:
            if name not in known:
                raise InputError(f"--only {name}: unknown (known: {', '.join(sorted(known))})")
        for name, program in programs.items():
            wanted = tuple(v for v in program.variants if not only or {name, full(name, v)} & {*only})
            if not wanted or (self.random and program.needs_checkpoint and name not in only):
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

    def open(self, chosen: Mapping[str, Program]) -> Members:
        """Build each program's files in one process and load it in another, to exclude the build's memory."""
        for done, (name, program) in enumerate(chosen.items()):
            try:
                if self.out_of_time(0):
                    raise InputError("no time was left for it: give it more")
                if program.needs_checkpoint:
                    self.progress(f"preparing {name}", done, len(chosen), "built once, then kept")
                    builder = self.start(name, program, self.source)
                    try:
                        options = {**program.options, "prepared": builder.prepare()}
                    finally:
                        builder.close()
                    program = replace(program, options=options)
                self.progress(f"loading {name}", done, len(chosen), "")
                process = self.processes[name] = self.start(name, program, self.source)
                self.facts[name] = process.load()
            except HamburgerError as error:
                if name in self.processes:
                    self.processes.pop(name).close()
                self._skip_all(name, program.variants, error)
        members = {full(name, v): (name, v) for name in self.processes for v in chosen[name].variants}
        if not members:
            raise self.nothing()
        return members

    def take_turns(
        self, members: Members, rounds: int, turn: Callable[[Measured, str, int], T]
    ) -> dict[str, list[T]]:
        """Call `turn(process, variant, round)` for each member in rotation. Skip members that fail."""
        total, done, began = (rounds + 1) * len(members), 0, self.clock()
        turns_began: list[float] = []  # start time of each round

        def measure(name: str, number: int) -> T:
            nonlocal done
            if len(turns_began) == number:
                turns_began.append(self.clock())
            program, variant = members[name]
            left = (self.clock() - began) / done * (total - done) if number else None
            remark = "warming up" if left is None else f"{name}, {duration(left)} left"
            self.progress("measuring", done, total, remark)
            done += 1
            return turn(self.processes[program], variant, number)

        def go_on(rounds: int) -> bool:
            return not self.out_of_time((self.clock() - began) / (rounds + 1))

        def failed(name: str, error: Exception) -> None:
            if not isinstance(error, HamburgerError):
                raise error
            self.skip(name, error)
            dead.add(members[name][0])

        dead: set[str] = set()
        turns = interleave(list(members), measure, rounds=rounds, go_on=go_on, failed=failed)
        for program in dead:
            self.processes.pop(program).close()
        for name, (program, variant) in members.items():
            if program in dead and name not in {row["name"] for row in self.skipped}:
                self.skip(
                    name, f"its program failed at another of its variants, and {variant or 'it'} with it"
                )
        finished = {name: timed for name, timed in turns.items() if members[name][0] not in dead}
        if not finished:
            raise self.nothing()
        return finished


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
