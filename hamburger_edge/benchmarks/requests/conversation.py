"""`bench --prompts --conversation`: the prompts as turns of one conversation, with our settings in rotation.

It shows what a token costs by the length of the conversation: real answers fill the cache. Other programs
take no part, since their adapters keep no conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hamburger_edge.benchmarks.contender import Program, Source, TimedMessage
from hamburger_edge.benchmarks.requests.prompts import BenchmarkPrompt
from hamburger_edge.benchmarks.requests.request_plan import RequestPlan
from hamburger_edge.benchmarks.speed.bench_report import BenchReport, shared_facts
from hamburger_edge.benchmarks.speed.our_speed import PLAIN, VERIFY
from hamburger_edge.benchmarks.speed.running import Measured, Running, Start, start
from hamburger_edge.errors import InputError
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.tables import table

LENGTHS = (256, 512, 1024, 2048, 3072, 4096, 8192)  # tokens; a row of the table is an interval
HEAD = ("tokens so far", "", "answers", "ms a token", "speed", "tokens a call", "slots a token", "as plain")


@dataclass(frozen=True)
class ConversationReport(BenchReport):
    results: list[dict[str, Any]]  # by length, then by setting
    answers: list[dict[str, Any]]


def settings_of(plan: RequestPlan) -> RequestPlan:
    """Return the plan. Without settings it gets two: plain decoding, and the model's recommended setting."""
    chosen = dict.fromkeys((PLAIN, plan.recommended or VERIFY))
    return plan if plan.settings else replace(plan, settings=tuple(chosen))


def converse(
    source: Source,
    plan: RequestPlan,
    prompts: Sequence[BenchmarkPrompt],
    programs: Mapping[str, Program],
    *,
    progress: Progress = no_progress,
    start: Start = start,
) -> ConversationReport:
    """Hold one conversation with each setting, a turn of each in rotation. The first turn warms up."""
    if len(prompts) < 2:
        raise InputError("--conversation: a conversation has two prompts or more; the first one warms up")

    def turn(process: Measured, variant: str, number: int) -> TimedMessage:
        prompt = prompts[number % len(prompts)]
        message: TimedMessage = process.ask("send", prompt.text, prompts[0].system, plan.max_tokens, variant)
        return message

    running = Running(source, only=plan.only, seconds=plan.seconds, progress=progress, start=start)
    try:
        members = running.open(running.choose(programs))
        turns = running.take_turns(members, plan.rounds or len(prompts) - 1, turn)
    finally:
        running.close()
    return ConversationReport(
        **shared_facts(source, running.skipped),
        results=by_length(turns),
        answers=[{"name": name, **asdict(message)} for name, timed in turns.items() for message in timed],
    )


def by_length(turns: Mapping[str, Sequence[TimedMessage]]) -> list[dict[str, Any]]:
    """Summarize the answers that end in each interval of lengths. Plain decoding is the measure, or else the
    first setting."""
    measure = next((name for name in turns if name.endswith(f"@{PLAIN}")), next(iter(turns)))
    rows = []
    for low, high in zip((0, *LENGTHS), LENGTHS, strict=False):
        times: dict[str, float] = {}
        for name in (measure, *(name for name in turns if name != measure)):
            here = [number for number, one in enumerate(turns[name]) if low < one.length <= high]
            some = [turns[name][number] for number in here]
            if not (tokens := sum(message.tokens for message in some)):
                continue
            times[name] = 1000 * sum(message.seconds for message in some) / tokens
            equal = [turns[name][number].text == turns[measure][number].text for number in here]
            rows.append(
                {
                    "length": high,
                    "name": name,
                    "answers": len(some),
                    "ms_per_token": times[name],
                    "speed": times[measure] / times[name] if measure in times else None,
                    "tokens_per_call": tokens / max(1, sum(message.base_calls for message in some)),
                    "slots_per_token": some[-1].slots / some[-1].length,
                    "equal": sum(equal) / len(equal),
                }
            )
    return rows


def tables(report: ConversationReport) -> str:
    """Return the report as a table for the terminal."""
    rows = [HEAD]
    for row in report.results:
        rows.append(
            (
                f"up to {row['length']:,}",
                row["name"],
                str(row["answers"]),
                f"{row['ms_per_token']:.2f}",
                "-" if row["speed"] is None else f"{row['speed']:.2f}",
                f"{row['tokens_per_call']:.2f}",
                f"{row['slots_per_token']:.2f}",
                f"{row['equal']:.0%}",
            )
        )
    notes = "speed: relative to plain decoding; as plain: answers with plain decoding's text at the same turn"
    return "\n\n".join([report.heading, table(rows), "\n".join([notes, *report.skipped_lines])])
