"""The bench measures what is there: known speeds come out as such, and nobody goes out of turn."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench_contender import PROMPT, Known, source

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

SHAPE_OF_JSON = {
    *("machine", "versions", "base", "precision", "threads"),
    *("results", "ratios", "skipped", "curve"),
}
SHAPE_OF_RESULT = {
    *("name", "decode_tps", "prefill_tps", "ttft_s", "tokens_per_step", "macro_ms", "micro_ms", "host_share"),
    *("peak_rss_mb", "load_s", "kv_bytes_per_token", "bandwidth_share"),
}


class OfSpeed(Known):
    """Takes exactly so long for a token, and writes down whose turn it was."""

    def __init__(self, name: str, tps: float, log: list[str], fails_at: int | None = None) -> None:
        self.name, self.tps, self.log, self.fails_at = name, tps, log, fails_at
        self.turns = 0
        self.stops_at: int | None = None  # tokens of a long answer

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn:
        self.turns += 1
        self.log.append(bench_plan.full(self.name, variant))
        if self.turns == self.fails_at:
            raise HamburgerError("it fell over")
        seconds = (tokens - 1) / self.tps
        return TimedTurn(
            tuple(range(tokens)), 0.5, seconds, 1, len(prompt), tokens, tokens - 1, seconds, slots=tokens
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        if method == "advance":
            [until] = arguments
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


PROGRAMS = {"onnx": Program("", variants=("plain", "merge-0.8")), "llama.cpp": Program("")}


def two(log: list[str], fails_at: int | None = None) -> dict[str, OfSpeed]:
    return {"onnx": OfSpeed("onnx", 50, log), "llama.cpp": OfSpeed("llama.cpp", 25, log, fails_at)}


@pytest.fixture(autouse=True)
def known_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"memory_bytes_per_s": 1e6, "weights_bytes_per_s": 2e6}
    monkeypatch.setattr(machine, "bandwidth", lambda *_: speeds)


def test_turns_are_interleaved_and_the_first_round_warms_up() -> None:
    log: list[tuple[str, int]] = []

    def measure(name: str, number: int) -> int:
        log.append((name, number))
        return number

    found = interleave("abc", measure, rounds=3, failed=lambda *_: None)
    assert log == [(name, number) for number in range(4) for name in "abc"]
    assert found == {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3]}


def test_time_runs_out_between_rounds() -> None:
    found = interleave("ab", lambda name, number: number, rounds=9, go_on=lambda done: done < 2, failed=print)
    assert found == {"a": [1, 2], "b": [1, 2]}


def test_spread_and_ratios_are_by_pairs() -> None:
    assert Spread.of([4, 1, 3, 2, 5]) == Spread(3, 2, 4)
    assert ratios([10, 40, 30], [5, 10, 30]) == Spread(2, 1.5, 3)


def test_the_report_has_its_shape_and_its_figures() -> None:
    log: list[str] = []
    contenders = two(log)
    report = known_bench(contenders).run(PROGRAMS).to_json()
    assert log == ["onnx@plain", "onnx@merge-0.8", "llama.cpp"] * 5  # one round warms up
    assert set(report) == SHAPE_OF_JSON
    assert json.loads(json.dumps(report)) == report
    rows = {row["name"]: row for row in report["results"]}
    assert list(rows) == ["onnx@plain", "onnx@merge-0.8", "llama.cpp"]
    assert all(set(row) >= SHAPE_OF_RESULT for row in rows.values())
    assert rows["llama.cpp"]["decode_tps"] == pytest.approx({"median": 25, "q1": 25, "q3": 25})
    assert rows["llama.cpp"]["host_share"] is None
    assert rows["onnx@merge-0.8"]["nll"] == 0.25
    assert rows["llama.cpp"]["nll"] is None
    assert (rows["onnx@plain"]["load_s"], rows["onnx@plain"]["peak_rss_mb"]) == (1.5, 64.0)
    assert rows["onnx@plain"]["prefill_tps"] == pytest.approx(4 / 0.5)
    found = [(pair["a"], pair["b"], pytest.approx(pair["decode"]["median"])) for pair in report["ratios"]]
    assert sorted(found) == [
        ("onnx@merge-0.8", "llama.cpp", 2),
        ("onnx@merge-0.8", "onnx@plain", 1),
        ("onnx@plain", "llama.cpp", 2),
    ]
    assert all(contender.closed for contender in contenders.values())
    table = bench_report.markdown(report)
    assert "| `llama.cpp` | fp32 | 25.0 (25.0-25.0) | 1.00 |" in table
    assert "| onnx@merge-0.8 | 1.00 (1.00-1.00) | 2.00 (2.00-2.00) |" in table


def long_answers(clock: Callable[[], float] = time.perf_counter, **changes: Any) -> bench_report.SpeedReport:
    contenders = {name: changes.pop(name) for name in ("onnx", "genai")}
    programs = {"onnx": Program("", variants=("plain",), needs_checkpoint=False)}
    programs |= {name: Program("", continues=True) for name in contenders if name != "onnx"}
    programs["other"] = Program("")  # one that cannot be taken further is not asked to
    contenders["other"] = OfSpeed("other", 10, [])
    return known_bench(contenders, clock, **{"rounds": 1, "longest": 320, **changes}).run(programs)


def test_long_answers_take_turns_and_are_compared_length_by_length() -> None:
    log: list[str] = []
    report = long_answers(onnx=OfSpeed("onnx", 50, log), genai=OfSpeed("genai", 25, log))
    a_round = ["onnx", "onnx", "genai"]  # plainly and in groups
    begun = [f"{name} up to 320 after 4" for name in ("onnx@plain", "onnx@merge-0.8", "genai@")]
    beginnings = [entry for pair in zip(begun, [f"{n} to 1" for n in a_round], strict=True) for entry in pair]
    stretches = [f"{name} to {until}" for until in range(64, 321, 64) for name in a_round]
    assert log[log.index(begun[0]) :] == beginnings + stretches
    assert [point["ms_per_token"] for point in report.curve] == pytest.approx([20, 20, 40] * 5)
    costs = {(cost.name, cost.length): cost for cost in bench_curve.at_lengths(report.curve)}
    assert set(costs) == {(name, n) for name in ("onnx@plain", "onnx@merge-0.8", "genai") for n in (128, 256)}
    cost = costs["onnx@merge-0.8", 256]
    assert (cost.ms_per_token, cost.kv_bytes) == (pytest.approx(20), 25600)
    assert cost.speed_over["genai"].median == pytest.approx(2)
    table = bench_report.markdown(report.to_json())
    assert "|  | tokens | ms/token | KV MB | speed over onnx@plain | speed over genai |" in table
    assert "| genai | 128 | 40.00 | 0.01 | 0.50 (0.50-0.50) |  |" in table


def test_who_fails_on_the_way_keeps_what_was_measured_and_the_others_go_on() -> None:
    onnx, genai = OfSpeed("onnx", 50, []), OfSpeed("genai", 25, [])
    genai.stops_at = 192
    report = long_answers(onnx=onnx, genai=genai)
    assert report.skipped == [{"name": "genai: cost against length", "why": "no more room"}]
    reached = {point["name"]: point["tokens"] for point in report.curve}
    assert reached == {"onnx@plain": 320, "onnx@merge-0.8": 320, "genai": 128}
    lengths = [(cost.name, cost.length) for cost in bench_curve.at_lengths(report.curve)]
    assert ("genai", 128) in lengths
    assert ("genai", 256) not in lengths
    assert ("onnx@plain", 256) in lengths


def test_a_curve_ends_where_the_time_does() -> None:
    now = 0.0

    class Slow(OfSpeed):
        def ask(self, method: str, *arguments: Any) -> Any:
            nonlocal now
            now += 10 * (method == "advance")
            return super().ask(method, *arguments)

    contenders = {"onnx": Slow("onnx", 50, []), "genai": Slow("genai", 25, [])}
    # 30 s until all have begun, which is no stretch, then 30 s a stretch: the third would end at 120
    report = long_answers(clock=lambda: now, seconds=115, **contenders)
    assert [point["tokens"] for point in report.curve] == [64] * 3 + [128] * 3


def test_by_default_every_prompt_is_measured_once() -> None:
    assert len(TEXTS) == 5
    asked: list[Sequence[int]] = []

    class Asked(OfSpeed):
        def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> TimedTurn:
            asked.append(prompt)
            return super().turn(prompt, tokens, variant)

    prompts = [[number] for number in range(len(TEXTS))]
    runner = Bench(source(), BenchPlan(longest=0), prompts, start=lambda *_: Asked("onnx", 50, []))
    report = runner.run({"onnx": Program("", variants=("plain",), needs_checkpoint=False)})
    assert sorted(asked[1:]) == prompts  # the first round warms up
    assert "answers of each: 5" in bench_report.tables(report)


def test_who_fails_is_skipped_with_the_reason_and_the_others_go_on() -> None:
    report = known_bench(two([], fails_at=3)).run(PROGRAMS)
    assert [row["name"] for row in report.results] == ["onnx@plain", "onnx@merge-0.8"]
    assert report.skipped == [{"name": "llama.cpp", "why": "it fell over"}]
    assert "skipped llama.cpp: it fell over" in bench_report.tables(report)


def test_when_everybody_fails_the_reasons_are_said() -> None:
    contenders = {"onnx": OfSpeed("onnx", 50, [], fails_at=1)}
    with pytest.raises(InputError, match=r"nothing to measure: onnx@plain: it fell over"):
        known_bench(contenders).run({"onnx": Program("", variants=("plain",))})


def test_only_some() -> None:
    log: list[str] = []
    known_bench(two(log), rounds=1, only=("onnx@merge-0.8",)).run(PROGRAMS)
    assert set(log) == {"onnx@merge-0.8"}
    with pytest.raises(InputError, match=r"--only bread: unknown \(known: llama.cpp, onnx"):
        known_bench(two(log), only=("bread",)).run(PROGRAMS)


def test_a_peer_that_is_not_installed_names_its_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(PEERS))
    monkeypatch.setattr("hamburger_edge.benchmarks.contender.installed", lambda module: False)
    report = known_bench(two([]), rounds=1).run({**PROGRAMS, name: PEERS[name]})
    [skipped] = report.skipped
    assert skipped["name"] == name
    assert skipped["why"].endswith("is not installed: run  pip install '.[bench]'  in the checkout")


def test_without_the_checkpoint_peers_are_skipped_with_the_way_out() -> None:
    programs = {"onnx": Program("", variants=("plain",), needs_checkpoint=False), "llama.cpp": Program("")}
    plan, contenders = BenchPlan(rounds=1, longest=0), two([])
    report = Bench(source(), plan, [PROMPT], start=lambda name, *_: contenders[name]).run(programs)
    assert [skipped["name"] for skipped in report.skipped] == ["llama.cpp"]
    assert "--against CHECKPOINT" in report.skipped[0]["why"]


def test_a_random_model_of_a_known_shape_is_measured_with_forced_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command: export, processes, curve, tables, JSON, pictures."""
    pytest.importorskip("onnx")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    file, pictures = tmp_path / "bench.json", tmp_path / "pictures"
    small = ("--tokens", "12", "--rounds", "2", "--longest", "192", "--threads", "1")
    assert cli.main(["bench", "--shape", "tiny", *small, "--json", str(file), "--plot", str(pictures)]) == 0
    report = json.loads(file.read_text())
    rows = {row["name"]: row for row in report["results"]}
    assert set(rows) == {"onnx@plain", "onnx@force-2"}
    assert report["base"] == "tiny, random weights"
    assert rows["onnx@plain"]["tokens_per_step"] == 1
    assert rows["onnx@force-2"]["tokens_per_step"] == 2
    halved = rows["onnx@plain"]["kv_bytes_per_token"] / rows["onnx@force-2"]["kv_bytes_per_token"]
    assert halved == 2
    lengths = {(p["name"], p["tokens"]): p["kv_bytes"] for p in report["curve"]}
    grown = {name: lengths[name, 192] - lengths[name, 64] for name in rows}
    assert grown["onnx@plain"] == 2 * grown["onnx@force-2"] > 0
    assert all(row["nll"] is None for row in rows.values())  # random words mean nothing
    assert {path.name for path in pictures.iterdir()} == {"speed.png", "length.png"}
    assert "onnx@force-2" in capsys.readouterr().out
