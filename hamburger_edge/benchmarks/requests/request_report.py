"""Report the answers as JSON, terminal tables and Markdown tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.benchmarks.contender import Facts, TimedAnswer
from hamburger_edge.benchmarks.speed.bench_report import BenchReport
from hamburger_edge.benchmarks.speed.interleave import Spread
from hamburger_edge.benchmarks.speed.speed_report import ratio_rows
from hamburger_edge.support.tables import number, pipes, table

NOTES = (
    "a base call is a forward of the base, reading the prompt is one",
    "first token: the first that the model chose",
    "onnxruntime-genai and llama.cpp keep one token a slot, and draft in their -lookup rows alone",
    "of onnxruntime-genai tokens are counted as base calls, also where it drafts",
)
STRUCTURED_NOTES = (
    "JSON comes in one line with a space after commas and colons: onnxruntime-genai is told so (x-guidance), "
    "of the grammar that llama-cpp-python makes of a schema the white space is fixed",
    "that grammar leaves out keywords that it does not know, lets control characters into strings, and says "
    "required properties first",
    "onnxruntime-genai says forced tokens by itself (enable_ff_tokens)",
    "llama.cpp looks at its best token first, and at all of them only where the grammar refuses that one; "
    "its answers end with an end token, which is one call more",
)


RATIOS = {
    "request": "their time of a request over ours, request by request (quartiles)",
    "token": "the same by token, since answers are not equally long",
}


@dataclass(frozen=True)
class CheckedAnswer:
    """A timed answer with its text and its checks."""

    prompt: int  # index
    timed: TimedAnswer
    text: str
    valid: bool | None = None  # valid under the schema; None: no schema
    right: bool | None = None  # None: no expected answer

    def to_json(self) -> dict[str, Any]:
        timed = asdict(self.timed)
        timed["tokens"] = len(self.timed.tokens)
        return {"prompt": self.prompt, "text": self.text, "valid": self.valid, "right": self.right, **timed}


@dataclass(frozen=True)
class RequestReport(BenchReport):
    schema: str | None
    results: list[dict[str, Any]]
    ratios: list[dict[str, Any]]
    answers: list[dict[str, Any]]  # all answers, grouped by program

    @property
    def notes(self) -> tuple[str, ...]:
        return NOTES + (STRUCTURED_NOTES if self.schema is not None else ())

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "notes": list(self.notes)}


def result(
    name: str, answers: Sequence[CheckedAnswer], facts: Facts, usage: tuple[float, float | None]
) -> dict[str, Any]:
    """Return one result row. `usage`: load time in seconds, peak memory in MB."""
    timed = [answer.timed for answer in answers]
    tokens = sum(len(request.tokens) for request in timed)
    calls = sum(request.base_calls for request in timed)
    forced = [request.forced for request in timed if request.forced is not None]
    hosts = [request.host_s / request.total_s for request in timed if request.host_s is not None]
    return {
        "name": name,
        "precision": facts.precision,
        "requests": len(timed),
        "request_ms": Spread.of(1000 * request.total_s for request in timed).to_json(),
        "first_token_ms": Spread.of(1000 * request.ttft_s for request in timed).to_json(),
        "tokens": tokens / len(timed),
        "base_calls": calls / len(timed),
        "micro_steps": sum(request.micro_steps for request in timed) / len(timed),
        "tokens_per_call": tokens / max(1, calls),
        "tokens_per_step": tokens / max(1, sum(request.steps for request in timed)),
        "slots_per_token": sum(request.slots for request in timed) / max(1, tokens),
        "forced_share": sum(forced) / max(1, tokens) if forced else None,
        "host_share": Spread.of(hosts).median if hosts else None,
        "valid": share([answer.valid for answer in answers]),
        "right": share([answer.right for answer in answers]),
        "load_s": usage[0],
        "peak_rss_mb": usage[1],
    }


def share(values: Sequence[bool | None]) -> float | None:
    """Return the share of True among the values that are not None."""
    told = [value for value in values if value is not None]
    return sum(told) / len(told) if told else None


HEAD = (
    *("", "stored", "ms a request", "(quartiles)", "first token ms", "tokens", "base calls"),
    *("tokens a call", "slots a token", "forced", "valid", "right"),
)


def _rows(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [HEAD]
    for figures in results:
        whole = figures["request_ms"]
        rows.append(
            (
                figures["name"],
                figures["precision"],
                f"{whole['median']:.0f}",
                f"{whole['q1']:.0f}-{whole['q3']:.0f}",
                f"{figures['first_token_ms']['median']:.0f}",
                f"{figures['tokens']:.1f}",
                f"{figures['base_calls']:.1f}",
                f"{figures['tokens_per_call']:.2f}",
                f"{figures['slots_per_token']:.2f}",
                number(figures["forced_share"], ".0%"),
                number(figures["valid"], ".1%"),
                number(figures["right"], ".1%"),
            )
        )
    return rows


def tables(report: RequestReport) -> str:
    """Return the report as tables for the terminal."""
    parts = [
        f"{report.heading}, requests of each: {report.results[0]['requests']}",
        table(_rows(report.results)),
    ]
    if report.ratios:
        parts += [f"{heading}\n{table(ratio_rows(report.ratios, of))}" for of, heading in RATIOS.items()]
    parts.append("\n".join(report.notes))
    if report.skipped:
        parts.append("\n".join(report.skipped_lines))
    return "\n\n".join(parts)


def markdown(report: Mapping[str, Any]) -> str:
    """Return the JSON report as Markdown tables."""
    parts = [pipes(_rows(report["results"]))]
    if report["ratios"]:
        for of, heading in RATIOS.items():
            parts += [f"{heading.capitalize()}:", pipes(ratio_rows(report["ratios"], of))]
    return "\n\n".join(parts)


if __name__ == "__main__":  # python -m hamburger_edge.benchmarks.requests.request_report requests.json
    print(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
