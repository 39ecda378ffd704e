"""Report the turns as JSON, terminal tables and Markdown tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from hamburger_edge.benchmarks.contender import Facts, TimedTurn, WeightBytes
from hamburger_edge.benchmarks.speed.bench_report import BenchReport
from hamburger_edge.benchmarks.speed.curve import at_lengths
from hamburger_edge.benchmarks.speed.interleave import Spread
from hamburger_edge.benchmarks.speed.speed_plan import pairs
from hamburger_edge.support.tables import number, pipes, table


@dataclass(frozen=True)
class SpeedRow:
    """The measurements of one program with one setting; None: not measured, or it has no such part."""

    name: str
    precision: str
    answers: int
    decode_tps: Spread
    prefill_tps: float
    ttft_s: float
    tokens_per_step: float
    macro_ms: float
    micro_ms: float | None
    host_share: float | None  # of the time, outside the model's calls
    peak_rss_mb: float | None
    load_s: float
    kv_bytes_per_token: float
    weight_bytes_per_token: float
    bandwidth_share: float  # of the memory's: weights read per second
    nll: float | None = None  # nats per token under the plain base
    agreement: float | None = None  # tokens that the plain base chooses as well

    @classmethod
    def of(
        cls,
        name: str,
        turns: Sequence[TimedTurn],
        facts: Facts,
        weights: WeightBytes,
        usage: tuple[float, float | None],
        speed: Mapping[str, float],
        score: tuple[float, float] | None = None,
    ) -> SpeedRow:
        """`usage`: load time in seconds, peak memory in MB. `speed`: memory bandwidths."""
        decode = Spread.of(turn.decode_tps for turn in turns)
        tokens = sum(len(turn.tokens) for turn in turns)
        weight_bytes = _weight_bytes_per_token(turns, weights)
        micro_s = [turn.micro_s / turn.micro_steps for turn in turns if turn.micro_steps]
        host = [t.host_s / (t.ttft_s + t.decode_s) for t in turns if t.host_s is not None]
        return cls(
            name=name,
            precision=facts.precision,
            answers=len(turns),
            decode_tps=decode,
            prefill_tps=median(turn.prefill_tps for turn in turns),
            ttft_s=median(turn.ttft_s for turn in turns),
            tokens_per_step=tokens / max(1, sum(turn.steps for turn in turns)),
            macro_ms=1000 * median(turn.macro_step_s for turn in turns),
            micro_ms=1000 * median(micro_s) if micro_s else None,
            host_share=median(host) if host else None,
            peak_rss_mb=usage[1],
            load_s=usage[0],
            kv_bytes_per_token=facts.kv_bytes_per_slot * sum(turn.slots for turn in turns) / max(1, tokens),
            weight_bytes_per_token=weight_bytes,
            bandwidth_share=weight_bytes * decode.median / speed["memory_bytes_per_s"],
            nll=None if score is None else score[0],
            agreement=None if score is None else score[1],
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SpeedRow:
        return cls(**{**data, "decode_tps": Spread(**data["decode_tps"])})


def _weight_bytes_per_token(turns: Sequence[TimedTurn], weights: WeightBytes) -> float:
    """Return the bytes of weights that decoding reads, per token after the first group."""
    bases, micros = sum(turn.base_calls for turn in turns), sum(turn.micro_steps for turn in turns)
    read = bases * weights.macro + micros * weights.micro + sum(turn.merged for turn in turns) * weights.embed
    return read / max(1, sum(len(turn.tokens) - turn.first_tokens for turn in turns))


@dataclass(frozen=True)
class SpeedReport(BenchReport):
    results: list[SpeedRow]
    ratios: list[dict[str, Any]]
    # points {"name", "tokens", "ms_per_token", "kv_bytes"}; ms_per_token: mean since the previous point
    curve: list[dict[str, Any]] = field(default_factory=list)


# Columns of the two tables for the terminal, and of the one in Markdown with its own heads.
SPEED = (
    *("", "decode tok/s", "(quartiles)", "tok/step", "macro ms", "micro ms", "host"),
    *("prefill tok/s", "first s"),
)
COST = (
    *("", "stored", "peak MB", "load s", "KV B/token", "weights MB/token", "bandwidth"),
    *("nats/token", "as base"),
)
MARKDOWN = {
    "": "",
    "stored": "stored",
    "decode tok/s": "tokens/s (quartiles)",
    "tok/step": "tokens a step",
    "macro ms": "macro ms",
    "micro ms": "micro ms",
    "host": "host",
    "prefill tok/s": "prefill tokens/s",
    "first s": "first token, s",
    "peak MB": "peak MB",
    "load s": "load s",
    "KV B/token": "KV bytes a token",
    "weights MB/token": "weights MB a token",
    "bandwidth": "of bandwidth",
}


def _cells(row: SpeedRow, none: str = "-") -> dict[str, str]:
    """Return a row as texts, by the heads for the terminal."""
    decode = row.decode_tps
    return {
        "": row.name,
        "stored": row.precision,
        "decode tok/s": f"{decode.median:.1f}",
        "(quartiles)": f"{decode.q1:.1f}-{decode.q3:.1f}",
        "tok/step": f"{row.tokens_per_step:.2f}",
        "macro ms": f"{row.macro_ms:.2f}",
        "micro ms": number(row.micro_ms, ".2f", none),
        "host": number(row.host_share, ".1%", none),
        "prefill tok/s": f"{row.prefill_tps:.0f}",
        "first s": f"{row.ttft_s:.3f}",
        "peak MB": number(row.peak_rss_mb, ".0f", none),
        "load s": f"{row.load_s:.2f}",
        "KV B/token": f"{row.kv_bytes_per_token:.0f}",
        "weights MB/token": f"{row.weight_bytes_per_token / 1e6:.1f}",
        "bandwidth": f"{row.bandwidth_share:.0%}",
        "nats/token": number(row.nll, ".3f"),
        "as base": number(row.agreement, ".1%"),
    }


def tables(report: SpeedReport) -> str:
    """Return the report as tables for the terminal."""
    machine, parts = report.machine, []
    memory = machine["memory_bytes_per_s"] / 1e9
    answers = report.results[0].answers  # equal for all: failed programs are left out
    parts.append(
        f"{report.heading}, answers of each: {answers}\n"
        f"memory is read at {memory:.1f} GB/s, a buffer of the weights' size at "
        f"{machine['weights_bytes_per_s'] / 1e9:.1f} GB/s"
    )
    cells = [_cells(row) for row in report.results]
    parts += [table([heads, *([row[head] for head in heads] for row in cells)]) for heads in (SPEED, COST)]
    if report.ratios:
        parts.append(
            "decode speed, ours over theirs, round by round (quartiles)\n" + table(ratio_rows(report.ratios))
        )
    if len(costs := _length_rows(report.curve)) > 1:
        parts.append("cost against length\n" + table(costs))
    if report.skipped:
        parts.append("\n".join(report.skipped_lines))
    return "\n\n".join(parts)


def ratio_rows(ratios: Sequence[Mapping[str, Any]], of: str = "decode") -> list[tuple[str, ...]]:
    ours = list(dict.fromkeys(ratio["a"] for ratio in ratios))
    theirs = list(dict.fromkeys(ratio["b"] for ratio in ratios))
    cells = {(ratio["a"], ratio["b"]): spread(ratio[of], ".2f") for ratio in ratios}
    return [("", *theirs), *((a, *(cells.get((a, b), "") for b in theirs)) for a in ours)]


def _length_rows(curve: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return one row per length and program, with the program's speed over each reference of `pairs`."""
    costs = at_lengths(curve)
    plain = list(dict.fromkeys(other for _, other in pairs(list(dict.fromkeys(cost.name for cost in costs)))))
    rows = [("", "tokens", "ms/token", "KV MB", *(f"speed over {name}" for name in plain))]
    for cost in costs:
        over = (cost.speed_over.get(name) for name in plain)
        ratios = ("" if ratio is None else spread(ratio.to_json(), ".2f") for ratio in over)
        figures = f"{cost.ms_per_token:.2f}", f"{cost.kv_bytes / 1e6:.2f}"
        rows.append((cost.name, str(cost.length), *figures, *ratios))
    return rows


def markdown(report: Mapping[str, Any]) -> str:
    """Return the Markdown tables of docs/research/speed.md from the JSON report."""
    rows: list[tuple[str, ...]] = [tuple(MARKDOWN.values())]
    for row in map(SpeedRow.from_json, report["results"]):
        cells = _cells(row, none="") | {
            "": f"`{row.name}`",
            "decode tok/s": spread(row.decode_tps.to_json(), ".1f"),
        }
        rows.append(tuple(cells[head] for head in MARKDOWN))
    parts = [rows, ratio_rows(report["ratios"]), _length_rows(report["curve"])]
    return "\n\n".join(pipes(part) for part in parts if len(part) > 1)


def spread(figures: Mapping[str, float], form: str) -> str:
    return f"{figures['median']:{form}} ({figures['q1']:{form}}-{figures['q3']:{form}})"


if __name__ == "__main__":  # python -m hamburger_edge.benchmarks.speed.speed_report bench.json
    print(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
