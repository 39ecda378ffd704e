"""The bench reports known speeds as they are and keeps the order of its contenders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.bench_contender import PROMPT, Known, source

import hamburger_edge.cli.main as cli
from hamburger_edge.benchmarks.contender import Program, TimedTurn
from hamburger_edge.benchmarks.peers.programs import PEERS
from hamburger_edge.benchmarks.speed import curve as bench_curve
from hamburger_edge.benchmarks.speed import speed_plan as bench_plan
from hamburger_edge.benchmarks.speed import speed_report as bench_report
from hamburger_edge.benchmarks.speed.interleave import Spread, interleave, ratios
from hamburger_edge.benchmarks.speed.speed_bench import Bench
from hamburger_edge.benchmarks.speed.speed_plan import TEXTS, BenchPlan
from hamburger_edge.errors import HamburgerError, InputError
from hamburger_edge.evaluation import machine


class OfSpeed(Known):
    """Takes exactly so long for a token, and writes down whose turn it was."""

    def __init__(self, name: str, tps: float, log: list[str], fails_at: int | None = None) -> None:
        self.name, self.tps, self.log, self.fails_at = name, tps, log, fails_at
        self.prompts: list[Sequence[int]] = []  # of its turns
        self.stops_at: int | None = None  # tokens of a long answer
        self.stretched: Callable[[], None] = lambda: None

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn:
        self.prompts.append(prompt)
        self.log.append(bench_plan.full(self.name, variant))
        if len(self.prompts) == self.fails_at:
            raise HamburgerError("it fell over")
        seconds = (tokens - 1) / self.tps
        return TimedTurn(
            tuple(range(tokens)), 0.5, seconds, 1, len(prompt), tokens, tokens - 1, seconds, slots=tokens
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        if method == "advance":
            [until] = arguments
            self.stretched()
            if until == self.stops_at:
                raise HamburgerError("no more room")
            self.log.append(f"{self.name} to {until}")
            return until, until / self.tps, until * 100
        if method == "begin":
            prompt, longest, variant = arguments
            self.log.append(f"{self.name}@{variant} up to {longest} after {len(prompt)}")
            return None
        return {"score": (0.25, 0.75)}[method]


def known_bench(
    contenders: dict[str, OfSpeed], clock: Callable[[], float] = time.perf_counter, **changes: Any
) -> Bench:
    plan = BenchPlan(**{"tokens": 11, "rounds": 4, "longest": 0, **changes})
    there = source(checkpoint=Path("there"))
    return Bench(there, plan, [PROMPT], start=lambda name, *_: contenders[name], clock=clock)


ALONE = {"onnx": Program("", variants=("plain",), needs_checkpoint=False)}
PROGRAMS = {"onnx": Program("", variants=("plain", "merge-0.8")), "llama.cpp": Program("")}


def two(log: list[str], fails_at: int | None = None) -> dict[str, OfSpeed]:
    return {"onnx": OfSpeed("onnx", 50, log), "llama.cpp": OfSpeed("llama.cpp", 25, log, fails_at)}


@pytest.fixture(autouse=True)
def known_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"memory_bytes_per_s": 1e6, "weights_bytes_per_s": 2e6}
    monkeypatch.setattr(machine, "bandwidth", lambda *_: speeds)


def test_bench_ends_between_rounds_and_compares_within_rounds() -> None:
    found = interleave("ab", lambda name, number: number, rounds=9, go_on=lambda done: done < 2, failed=print)
    assert found == {"a": [1, 2], "b": [1, 2]}  # without round 0, which warms up
    assert ratios([10, 40, 30], [5, 10, 30]) == Spread.of([4, 1, 2]) == Spread(2, 1.5, 3)


def test_report_has_the_figures_of_all_contenders() -> None:
    log: list[str] = []
    contenders = two(log)
    report = known_bench(contenders).run(PROGRAMS).to_json()
    assert log == ["onnx@plain", "onnx@merge-0.8", "llama.cpp"] * 5  # one round warms up
    assert json.loads(json.dumps(report)) == report
    plain, merged, peer = report["results"]
    assert [each["name"] for each in report["results"]] == log[:3]
    assert peer["decode_tps"] == pytest.approx({"median": 25, "q1": 25, "q3": 25})
    assert (plain["load_s"], plain["peak_rss_mb"], plain["ttft_s"]) == (1.5, 64.0, 0.5)
    assert plain["prefill_tps"] == pytest.approx(4 / 0.5)
    assert (merged["nll"], peer["nll"], peer["host_share"]) == (0.25, None, None)
    assert {(pair["a"], pair["b"]): pair["decode"]["median"] for pair in report["ratios"]} == pytest.approx(
        {
            ("onnx@merge-0.8", "llama.cpp"): 2,
            ("onnx@merge-0.8", "onnx@plain"): 1,
            ("onnx@plain", "llama.cpp"): 2,
        }
    )
    assert all(contender.closed for contender in contenders.values())
    table = bench_report.markdown(report)
    assert "| `llama.cpp` | fp32 | 25.0 (25.0-25.0) | 1.00 |" in table
    assert "| onnx@merge-0.8 | 1.00 (1.00-1.00) | 2.00 (2.00-2.00) |" in table


def long_answers(
    log: list[str],
    stops_at: int | None = None,
    stretched: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    **changes: Any,
) -> bench_report.SpeedReport:
    """Of onnx and of genai, which stops after so many tokens; the third cannot be taken further."""
    contenders = {name: OfSpeed(name, tps, log) for name, tps in (("onnx", 50), ("genai", 25), ("other", 10))}
    contenders["genai"].stops_at = stops_at
    for each in contenders.values():
        each.stretched = stretched
    ours = Program("", variants=("plain", "merge-0.8"), needs_checkpoint=False)
    programs = {"onnx": ours, "genai": Program("", continues=True), "other": Program("")}
    return known_bench(contenders, clock, **{"rounds": 1, "longest": 320, **changes}).run(programs)


def test_long_answers_alternate_and_are_compared_by_length() -> None:
    """One that fails on the way keeps what was measured, and the others go on."""
    log: list[str] = []
    report = long_answers(log, stops_at=192)
    modes = ["onnx@plain", "onnx@verify", "onnx@hybrid-0.95", "onnx@merge-0.8"]
    a_round = ["onnx"] * 4 + ["genai"]
    begun = [f"{name} up to 320 after 4" for name in (*modes, "genai@")]
    beginnings = [entry for pair in zip(begun, [f"{n} to 1" for n in a_round], strict=True) for entry in pair]
    stretches = [f"{name} to {until}" for until in (64, 128) for name in a_round]
    stretches += [f"onnx to {until}" for until in (192, 256, 320) for _ in modes]
    assert log[log.index(begun[0]) :] == beginnings + stretches
    assert report.skipped == [{"name": "genai: cost against length", "why": "no more room"}]
    assert [point["ms_per_token"] for point in report.curve] == pytest.approx(
        [20, 20, 20, 20, 40] * 2 + [20] * 12
    )
    costs = {(cost.name, cost.length): cost for cost in bench_curve.at_lengths(report.curve)}
    ours = {(name, length) for name in modes for length in (128, 256)}
    assert set(costs) == ours | {("genai", 128)}
    cost = costs["onnx@merge-0.8", 256]
    assert (cost.ms_per_token, cost.kv_bytes) == (pytest.approx(20), 25600)
    assert costs["onnx@merge-0.8", 128].speed_over["genai"].median == pytest.approx(2)
    table = bench_report.markdown(report.to_json())
    assert "|  | tokens | ms/token | KV MB | speed over onnx@plain | speed over genai |" in table
    assert "| genai | 128 | 40.00 | 0.01 | 0.50 (0.50-0.50) |  |" in table


def test_curve_ends_when_the_time_is_over() -> None:
    now = 0.0

    def pass_time() -> None:
        nonlocal now
        now += 10

    # 50 s until all have begun, which is no stretch, then 50 s a stretch: the third would end at 200
    report = long_answers([], stretched=pass_time, clock=lambda: now, seconds=195)
    assert [point["tokens"] for point in report.curve] == [64] * 5 + [128] * 5


def test_the_curve_has_every_mode_that_can_differ_from_plain_decoding() -> None:
    merging = ("plain", "merge-0.9", "merge-0.8", "merge-0.7", "verify")
    assert bench_plan.compared(merging) == ("verify", "hybrid-0.95", "merge-0.8")
    assert bench_plan.compared(("plain", "verify")) == ("verify",)  # a plain model merges nothing
    assert bench_plan.compared((*merging, "force-2")) == ("force-2",)
    assert bench_plan.compared(("plain",)) == ()  # random weights guess nothing


def test_by_default_every_prompt_is_measured_once() -> None:
    prompts = [[number] for number in range(len(TEXTS))]
    contender = OfSpeed("onnx", 50, [])
    report = Bench(source(), BenchPlan(longest=0), prompts, start=lambda *_: contender).run(ALONE)
    assert sorted(contender.prompts[1:]) == prompts  # the first round warms up
    assert "answers of each: 5" in bench_report.tables(report)


def test_failing_contender_is_skipped_with_the_reason() -> None:
    report = known_bench(two([], fails_at=3)).run(PROGRAMS)
    assert [row.name for row in report.results] == ["onnx@plain", "onnx@merge-0.8"]
    assert report.skipped == [{"name": "llama.cpp", "why": "it fell over"}]
    assert "skipped llama.cpp: it fell over" in bench_report.tables(report)
    with pytest.raises(InputError, match="nothing to measure: onnx@plain: it fell over"):
        known_bench({"onnx": OfSpeed("onnx", 50, [], fails_at=1)}).run(ALONE)


def test_only_chosen_contenders_are_measured() -> None:
    log: list[str] = []
    known_bench(two(log), rounds=1, only=("onnx@merge-0.8",)).run(PROGRAMS)
    assert set(log) == {"onnx@merge-0.8"}
    with pytest.raises(InputError, match=r"--only bread: unknown \(known: llama.cpp, onnx"):
        known_bench(two(log), only=("bread",)).run(PROGRAMS)


def test_unavailable_peer_is_skipped_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hamburger_edge.benchmarks.contender.installed", lambda module: False)
    name, lacking = next(iter(PEERS.items()))
    programs = {**ALONE, name: lacking, "here": Program("")}
    plan = BenchPlan(rounds=1, longest=0)
    report = Bench(source(), plan, [PROMPT], start=lambda *_: OfSpeed("onnx", 50, [])).run(programs)
    package, checkpoint = report.skipped
    assert (package["name"], checkpoint["name"]) == (name, "here")
    assert package["why"].endswith("is not installed: run  pip install '.[bench]'  in the checkout")
    assert "--against CHECKPOINT" in checkpoint["why"]


@pytest.mark.slow
def test_random_model_of_a_known_shape_is_measured_with_forced_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command: export, processes, curve, tables, JSON, pictures."""
    pytest.importorskip("onnx")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    file, pictures = tmp_path / "bench.json", tmp_path / "pictures"
    small = ("--tokens", "12", "--rounds", "2", "--longest", "192", "--threads", "1")
    assert cli.main(["bench", "--shape", "tiny", *small, "--report", str(file), "--plot", str(pictures)]) == 0
    report = json.loads(file.read_text())
    rows = {row["name"]: row for row in report["results"]}
    assert set(rows) == {"onnx@plain", "onnx@force-2"}
    assert report["base"] == "tiny, random weights"
    plain, forced = rows["onnx@plain"], rows["onnx@force-2"]
    assert (plain["tokens_per_step"], forced["tokens_per_step"]) == (1, 2)
    assert plain["kv_bytes_per_token"] == 2 * forced["kv_bytes_per_token"]
    lengths = {(p["name"], p["tokens"]): p["kv_bytes"] for p in report["curve"]}
    grown = {name: lengths[name, 192] - lengths[name, 64] for name in rows}
    assert grown["onnx@plain"] == 2 * grown["onnx@force-2"] > 0
    assert plain["nll"] is forced["nll"] is None  # random words mean nothing
    assert {path.name for path in pictures.iterdir()} == {"speed.png", "length.png"}
    assert "onnx@force-2" in capsys.readouterr().out
