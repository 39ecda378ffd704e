"""The bench measures what is there: known speeds and stops come out as such, and nobody goes out of turn."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_tokenizers
from scripted_backend import ScriptedBackend, info

import hamburger_edge.cli as cli
from hamburger_edge.benchmarks import bench_ours, bench_plan, bench_report, machine
from hamburger_edge.benchmarks.bench import Bench
from hamburger_edge.benchmarks.bench_plan import Plan
from hamburger_edge.benchmarks.bench_prompts import TEXTS
from hamburger_edge.benchmarks.interleave import Spread, interleave, ratios
from hamburger_edge.benchmarks.peers import PEERS, Facts, Program, Source, Turn, WeightBytes
from hamburger_edge.chat import ChatTemplate
from hamburger_edge.errors import HamburgerError, InputError
from hamburger_edge.model import Model
from hamburger_edge.tokenizer import Tokenizer

MACRO_S, MICRO_S, HOST_S = 0.010, 0.002, 0.001  # of the model below, by its own clock
PROMPT = [5, 6, 7, 8]
SHAPE_OF_JSON = {
    *("machine", "versions", "base", "precision", "threads"),
    *("results", "ratios", "skipped", "curve"),
}
SHAPE_OF_RESULT = {
    *("name", "decode_tps", "prefill_tps", "ttft_s", "tokens_per_step", "macro_ms", "micro_ms", "host_share"),
    *("peak_rss_mb", "load_s", "kv_bytes_per_token", "bandwidth_share"),
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(ScriptedBackend):
    """Takes exactly so long for each step, and its groups are always of three tokens."""

    clock: Clock
    fed: list[int]  # slots of every call

    def macro(self, groups: Any, positions: Any, rows: Any) -> Any:
        self.clock.now += MACRO_S * len(groups)
        self.fed.append(len(groups))
        return super().macro(groups, positions, rows)

    def micro(self, token: int) -> Any:
        self.clock.now += MICRO_S
        readout = super().micro(token)
        stop = 1.0 if len(self._draft or ()) - len(self.text) >= 2 else 0.0
        return readout._replace(p_stop=stop)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("engine", "stream"):
        monkeypatch.setattr(f"hamburger_edge.{module}.perf_counter", clock)
    return clock


@pytest.fixture
def ours(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bench_ours.Ours:
    tokenizer = Tokenizer(toy_tokenizers.byte_level(tmp_path))
    backend = Timed(info(vocab_size=tokenizer.vocab_size), p_stop=0.0)
    backend.clock, backend.fed = clock, []
    model = Model(backend, tokenizer, ChatTemplate.preset("chatml"))
    choose = model.sampler

    def sampler(settings: Any) -> Any:
        made = choose(settings)
        inner = made.choose

        def slow(logits: Any) -> Any:
            clock.now += HOST_S
            return inner(logits)

        made.choose = slow  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(model, "sampler", sampler)
    return bench_ours.Ours(source(), backend="onnx", model=model)


def source(**changes: Any) -> Source:
    fields = {"bundle": Path("none"), "checkpoint": None, "precision": "fp32", "threads": 1, "slots": 512}
    return Source(**{**fields, **changes})


class Known:
    """A contender of known speed that writes down whose turn it was."""

    def __init__(self, name: str, tps: float, log: list[str], fails_at: int | None = None) -> None:
        self.name, self.tps, self.log, self.fails_at = name, tps, log, fails_at
        self.turns, self.closed = 0, False

    def prepare(self) -> Path:
        return Path("made")

    def load(self) -> Facts:
        return Facts("fp32", kv_bytes_per_slot=100)

    def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> Turn:
        self.turns += 1
        self.log.append(bench_plan.full(self.name, variant))
        if self.turns == self.fails_at:
            raise HamburgerError("it fell over")
        seconds = (tokens - 1) / self.tps
        return Turn(
            tuple(range(tokens)), 0.5, seconds, 1, len(prompt), tokens, tokens - 1, seconds, slots=tokens
        )

    def weight_bytes(self) -> WeightBytes:
        return WeightBytes(1000)

    def usage(self) -> tuple[float, float | None]:
        return 1.5, 64.0

    def ask(self, method: str, *arguments: Any) -> Any:
        return {"score": (0.25, 0.75)}[method]

    def close(self) -> None:
        self.closed = True


def known_bench(contenders: dict[str, Known], **changes: Any) -> Bench:
    plan = Plan(**{"tokens": 11, "rounds": 4, "longest": 0, **changes})
    return Bench(source(checkpoint=Path("there")), plan, [PROMPT], start=lambda name, *_: contenders[name])


@pytest.fixture(autouse=True)
def known_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"memory_bytes_per_s": 1e6, "weights_bytes_per_s": 2e6}
    monkeypatch.setattr(machine, "bandwidth", lambda *_: speeds)


def test_a_backend_of_known_speed_and_stops_is_reported_as_such(ours: bench_ours.Ours) -> None:
    turn = ours.turn(PROMPT, 31, "0.8")
    assert len(turn.tokens) == 31
    assert (turn.first_tokens, turn.steps, turn.merged) == (3, 11, 10)  # ten groups of 3, one of 1
    assert turn.ttft_s == pytest.approx(4 * MACRO_S + 2 * MICRO_S + HOST_S)  # of all programs alike
    assert turn.macro_s == pytest.approx(10 * MACRO_S)
    assert turn.host_s == pytest.approx(11 * HOST_S)
    speed = {"memory_bytes_per_s": 1e6}
    row = bench_report.result(
        "onnx@0.8", [turn], Facts("fp32", 100), WeightBytes(1000, 100, 10), (1, 2), speed
    )
    assert row["tokens_per_step"] == pytest.approx(31 / 11)
    assert row["macro_ms"] == pytest.approx(1000 * MACRO_S)
    assert row["micro_ms"] == pytest.approx(1000 * MICRO_S)
    spent = 10 * MACRO_S + turn.micro_steps * MICRO_S + 10 * HOST_S
    assert row["decode_tps"]["median"] == pytest.approx(28 / spent)
    assert row["prefill_tps"] == pytest.approx(4 / turn.ttft_s)
    assert row["kv_bytes_per_token"] == pytest.approx(100 * 11 / 31)
    read = 10 * 1000 + turn.micro_steps * 100 + 10 * 10
    assert row["weight_bytes_per_token"] == pytest.approx(read / 28)
    assert row["bandwidth_share"] == pytest.approx(read / 28 * 28 / spent / 1e6)


def test_plain_and_forced_variants(ours: bench_ours.Ours) -> None:
    plain = ours.turn(PROMPT, 12, "1.0")
    assert (plain.steps, plain.micro_steps, plain.merged, plain.slots) == (12, 0, 0, 12)
    assert plain.decode_tps == pytest.approx(1 / (MACRO_S + HOST_S))
    forced = ours.turn(PROMPT, 12, "force-2")
    assert (forced.steps, forced.micro_steps, forced.merged) == (
        6,
        5,
        6,
    )  # the first group's is before the first token


def test_a_verified_answer_is_plain_decodings_and_keeps_a_slot_for_each_token(ours: bench_ours.Ours) -> None:
    plain, verified = (ours.turn(PROMPT, 12, variant) for variant in ("1.0", "verify"))
    assert verified.tokens == plain.tokens
    assert (verified.merged, verified.slots) == (0, 12)
    assert verified.steps < plain.steps


def test_the_first_verified_group_is_not_among_what_decoding_took(ours: bench_ours.Ours) -> None:
    """It takes a base call of its own, before the first token is out."""
    assert ours.model is not None
    turn = ours.turn(PROMPT, 12, "verify")
    prompt, _, *later = ours.model.backend.fed  # type: ignore[attr-defined]
    assert prompt == len(PROMPT)
    assert turn.base_calls == len(later)
    assert turn.macro_s == pytest.approx(MACRO_S * sum(later))


def test_answers_go_on_after_an_end_token(ours: bench_ours.Ours) -> None:
    assert ours.model is not None
    ours.model.backend.eos_rate = 0.5  # type: ignore[attr-defined]
    assert all(len(ours.turn(PROMPT, 40, variant).tokens) == 40 for variant in ("1.0", "0.7", "force-2"))


def test_an_answer_is_advanced_in_stretches(ours: bench_ours.Ours) -> None:
    ours.begin(PROMPT, 60, "0.8")
    stretches = [ours.advance(until) for until in (20, 40, 60)]
    assert [tokens for tokens, _, _ in stretches] == [21, 42, 60]
    kv = [bytes_used for _, _, bytes_used in stretches]
    assert kv[0] < kv[1] < kv[2] <= 100 * (len(PROMPT) + 20)
    assert 0 < stretches[0][1] < stretches[1][1] < stretches[2][1]


def test_scores_are_the_base_s_own(ours: bench_ours.Ours) -> None:
    assert ours.model is not None
    backend: Any = ours.model.backend
    plain = backend.plain(PROMPT, 8)
    other = [*plain[:5], (plain[5] + 1) % 10 + 20]
    scores = [backend.scores((*PROMPT, *other[:i])) for i in range(len(other))]
    losses = [math.log(np.exp(s - s[t], dtype=np.float64).sum()) for s, t in zip(scores, other, strict=True)]
    nll, agreement = bench_ours.score(backend, PROMPT, other)
    assert nll == pytest.approx(sum(losses) / len(other), rel=1e-5)
    assert agreement == pytest.approx(np.mean([s.argmax() == t for s, t in zip(scores, other, strict=True)]))
    assert backend.slots == 0


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
    contenders = {"onnx": Known("onnx", 50, log), "llama.cpp": Known("llama.cpp", 25, log)}
    programs = {"onnx": Program("", variants=("1.0", "0.8")), "llama.cpp": Program("")}
    report = known_bench(contenders).run(programs).to_json()
    assert log == ["onnx@1.0", "onnx@0.8", "llama.cpp"] * 5  # one round warms up
    assert set(report) == SHAPE_OF_JSON
    assert json.loads(json.dumps(report)) == report
    rows = {row["name"]: row for row in report["results"]}
    assert list(rows) == ["onnx@1.0", "onnx@0.8", "llama.cpp"]
    assert all(set(row) >= SHAPE_OF_RESULT for row in rows.values())
    assert rows["llama.cpp"]["decode_tps"] == pytest.approx({"median": 25, "q1": 25, "q3": 25})
    assert rows["llama.cpp"]["host_share"] is None
    assert rows["onnx@0.8"]["nll"] == 0.25
    assert rows["llama.cpp"]["nll"] is None
    assert (rows["onnx@1.0"]["load_s"], rows["onnx@1.0"]["peak_rss_mb"]) == (1.5, 64.0)
    assert rows["onnx@1.0"]["prefill_tps"] == pytest.approx(4 / 0.5)
    found = {(pair["a"], pair["b"]): pair["decode"]["median"] for pair in report["ratios"]}
    assert found == pytest.approx(
        {("onnx@0.8", "onnx@1.0"): 1, ("onnx@1.0", "llama.cpp"): 2, ("onnx@0.8", "llama.cpp"): 2}
    )
    assert all(contender.closed for contender in contenders.values())
    table = bench_report.markdown(report)
    assert "| `llama.cpp` | fp32 | 25.0 (25.0-25.0) | 1.00 |" in table
    assert "| onnx@0.8 | 1.00 (1.00-1.00) | 2.00 (2.00-2.00) |" in table


def test_by_default_every_prompt_is_measured_once() -> None:
    assert len(TEXTS) == 5
    asked: list[Sequence[int]] = []

    class Asked(Known):
        def turn(self, prompt: Sequence[int], tokens: int, variant: str) -> Turn:
            asked.append(prompt)
            return super().turn(prompt, tokens, variant)

    prompts = [[number] for number in range(len(TEXTS))]
    runner = Bench(source(), Plan(longest=0), prompts, start=lambda *_: Asked("onnx", 50, []))
    report = runner.run({"onnx": Program("", variants=("1.0",), needs_checkpoint=False)})
    assert sorted(asked[1:]) == prompts  # the first round warms up
    assert "answers of each: 5" in bench_report.tables(report)


def test_who_fails_is_skipped_with_the_reason_and_the_others_go_on() -> None:
    log: list[str] = []
    contenders = {"onnx": Known("onnx", 50, log), "llama.cpp": Known("llama.cpp", 25, log, fails_at=3)}
    programs = {"onnx": Program("", variants=("1.0",)), "llama.cpp": Program("")}
    report = known_bench(contenders).run(programs)
    assert [row["name"] for row in report.results] == ["onnx@1.0"]
    assert report.skipped == [{"name": "llama.cpp", "why": "it fell over"}]
    assert "skipped llama.cpp: it fell over" in bench_report.tables(report)


def test_when_everybody_fails_the_reasons_are_said() -> None:
    contenders = {"onnx": Known("onnx", 50, [], fails_at=1)}
    with pytest.raises(InputError, match=r"nothing to measure: onnx@1\.0: it fell over"):
        known_bench(contenders).run({"onnx": Program("", variants=("1.0",))})


def test_only_some(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    contenders = {"onnx": Known("onnx", 50, log), "llama.cpp": Known("llama.cpp", 25, log)}
    programs = {"onnx": Program("", variants=("1.0", "0.8")), "llama.cpp": Program("")}
    known_bench(contenders, rounds=1, only=("onnx@0.8",)).run(programs)
    assert set(log) == {"onnx@0.8"}
    with pytest.raises(InputError, match=r"--only bread: unknown \(known: llama.cpp, onnx"):
        known_bench(contenders, only=("bread",)).run(programs)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_not_installed_names_its_pip_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hamburger_edge.benchmarks.peers.installed", lambda module: False)
    contenders = {"onnx": Known("onnx", 50, [])}
    programs = {"onnx": Program("", variants=("1.0",)), name: PEERS[name]}
    report = known_bench(contenders, rounds=1).run(programs)
    [skipped] = report.skipped
    assert skipped["name"] == name
    assert skipped["why"].endswith("is not installed: run  pip install 'hamburger-edge[bench]'")


def test_without_the_checkpoint_peers_are_skipped_with_the_way_out() -> None:
    contenders = {"onnx": Known("onnx", 50, [])}
    programs = {"onnx": Program("", variants=("1.0",), needs_checkpoint=False), "llama.cpp": Program("")}
    runner = Bench(source(), Plan(rounds=1, longest=0), [PROMPT], start=lambda name, *_: contenders[name])
    report = runner.run(programs)
    assert [skipped["name"] for skipped in report.skipped] == ["llama.cpp"]
    assert "--against CHECKPOINT" in report.skipped[0]["why"]


def test_memory_is_read_at_the_speed_the_clock_says(clock: Clock) -> None:
    def ticking() -> float:
        clock.now += 0.5
        return clock.now

    assert machine.read_speed(1 << 20, 1, ticking) == pytest.approx((1 << 20) / 0.5)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["bench", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either a BUNDLE or  --shape NAME"),
        (("no-such-bundle",), "no such bundle folder"),
        (("--shape", "pizza"), "--shape pizza: unknown (known: llama-3.2-1b, tiny)"),
        (("--shape", "tiny", "--tokens", "1"), "--tokens must be 2 to"),
        (("--shape", "tiny", "--threads", "0"), "--threads must be 1 to"),
        (("--shape", "tiny", "--rounds", "0"), "--rounds must be 1 to"),
        (("--shape", "tiny", "--force-group", "1"), "--force-group must be 2 to"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_random_model_of_a_known_shape_is_measured_with_forced_groups(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole command: export, processes, curve, tables, JSON, pictures."""
    pytest.importorskip("onnx")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    file, pictures = tmp_path / "bench.json", tmp_path / "pictures"
    small = ("--tokens", "12", "--rounds", "2", "--longest", "192", "--threads", "1")
    code, out, err = run("--shape", "tiny", *small, "--json", str(file), "--plot", str(pictures))
    assert code == 0, err
    report = json.loads(file.read_text())
    rows = {row["name"]: row for row in report["results"]}
    assert set(rows) == {"onnx@1.0", "onnx@force-2"}
    assert report["base"] == "tiny, random weights"
    assert rows["onnx@1.0"]["tokens_per_step"] == 1
    assert rows["onnx@force-2"]["tokens_per_step"] == 2
    halved = rows["onnx@1.0"]["kv_bytes_per_token"] / rows["onnx@force-2"]["kv_bytes_per_token"]
    assert halved == 2
    lengths = {(p["name"], p["tokens"]): p["kv_bytes"] for p in report["curve"]}
    grown = {name: lengths[name, 192] - lengths[name, 64] for name in rows}
    assert grown["onnx@1.0"] == 2 * grown["onnx@force-2"] > 0
    assert all(row["nll"] is None for row in rows.values())  # random words mean nothing
    assert {path.name for path in pictures.iterdir()} == {"speed.png", "length.png"}
    assert "onnx@force-2" in out
