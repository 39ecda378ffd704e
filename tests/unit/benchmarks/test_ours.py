"""Our runtime as a program of the bench, with a simulated clock: its counts and their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.bench_contender import PROMPT, source
from helpers.scripted_backend import ScriptedBackend, info
from helpers.toys import toy_tokenizers

from hamburger_edge.benchmarks.contender import Facts, WeightBytes
from hamburger_edge.benchmarks.speed import our_speed as bench_ours
from hamburger_edge.benchmarks.speed import speed_report as bench_report
from hamburger_edge.chat.inference import Inference
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.evaluation import machine
from hamburger_edge.model import Model

MACRO_S, MICRO_S, HOST_S = 0.010, 0.002, 0.001  # of the model below, by its own clock


class Clock:
    now = 0.0

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
    for module in ("loop.cached_text", "loop.modes.micro_steps", "chat.stream"):
        monkeypatch.setattr(f"hamburger_edge.{module}.perf_counter", clock)
    return clock


@pytest.fixture
def ours(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bench_ours.Ours:
    tokenizer = Tokenizer(toy_tokenizers.byte_level(tmp_path))
    backend = Timed(info(vocab_size=tokenizer.vocab_size), p_stop=0.0)
    backend.clock, backend.fed = clock, []
    model = Model(backend, tokenizer, ChatTemplate.preset("chatml"))
    choose = Inference.sampler

    def sampler(inference: Inference, settings: Any, *processors: Any) -> Any:
        made = choose(inference, settings)
        inner = made.choose

        def slow(logits: Any) -> Any:
            clock.now += HOST_S
            return inner(logits)

        made.choose = slow  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(Inference, "sampler", sampler)
    return bench_ours.Ours(source(), backend="onnx", model=model)


def test_backend_of_known_speed_is_reported_with_it(ours: bench_ours.Ours) -> None:
    turn = ours.turn(PROMPT, 31, "merge-0.8")
    assert len(turn.tokens) == 31
    assert (turn.first_tokens, turn.steps, turn.merged) == (3, 11, 10)  # ten groups of 3, one of 1
    assert turn.ttft_s == pytest.approx(4 * MACRO_S + 2 * MICRO_S + HOST_S)  # of all programs alike
    assert turn.macro_s == pytest.approx(10 * MACRO_S)
    assert turn.host_s == pytest.approx(11 * HOST_S)
    speed = {"memory_bytes_per_s": 1e6}
    row = bench_report.SpeedRow.of(
        "onnx@merge-0.8", [turn], Facts("fp32", 100), WeightBytes(1000, 100, 10), (1, 2), speed
    )
    assert row.tokens_per_step == pytest.approx(31 / 11)
    assert row.macro_ms == pytest.approx(1000 * MACRO_S)
    assert row.micro_ms == pytest.approx(1000 * MICRO_S)
    spent = 10 * MACRO_S + turn.micro_steps * MICRO_S + 10 * HOST_S
    assert row.decode_tps.median == pytest.approx(28 / spent)
    assert row.prefill_tps == pytest.approx(4 / turn.ttft_s)
    assert row.kv_bytes_per_token == pytest.approx(100 * 11 / 31)
    read = 10 * 1000 + turn.micro_steps * 100 + 10 * 10
    assert row.weight_bytes_per_token == pytest.approx(read / 28)
    assert row.bandwidth_share == pytest.approx(read / 28 * 28 / spent / 1e6)


def test_plain_and_forced_variants_have_their_groups(ours: bench_ours.Ours) -> None:
    plain = ours.turn(PROMPT, 12, "plain")
    assert (plain.steps, plain.micro_steps, plain.merged, plain.slots) == (12, 0, 0, 12)
    assert plain.decode_tps == pytest.approx(1 / (MACRO_S + HOST_S))
    forced = ours.turn(PROMPT, 12, "force-2")
    # the micro step of the first group is before the first token
    assert (forced.steps, forced.micro_steps, forced.merged) == (6, 5, 6)


def test_verified_answer_equals_plain_decoding_with_a_slot_per_token(ours: bench_ours.Ours) -> None:
    """The base call of the first verified group, before the first token, is not among those of decoding."""
    plain = ours.turn(PROMPT, 12, "plain")
    fed = ours.model.backend.fed  # type: ignore[attr-defined]
    fed.clear()
    verified = ours.turn(PROMPT, 12, "verify")
    assert verified.tokens == plain.tokens
    assert (verified.merged, verified.slots) == (0, 12)
    assert verified.steps < plain.steps
    prompt, _, *later = fed
    assert prompt == len(PROMPT)
    assert verified.base_calls == len(later)
    assert verified.macro_s == pytest.approx(MACRO_S * sum(later))


def test_answers_continue_after_an_end_token(ours: bench_ours.Ours) -> None:
    ours.model.backend.eos_rate = 0.5  # type: ignore[attr-defined]
    for variant in ("plain", "merge-0.7", "force-2"):
        assert len(ours.turn(PROMPT, 40, variant).tokens) == 40


def test_answer_is_advanced_in_stretches(ours: bench_ours.Ours) -> None:
    ours.begin(PROMPT, 60, "force-3")
    tokens, seconds, kv = zip(*(ours.advance(until) for until in (20, 40, 60)), strict=True)
    assert tokens == (21, 42, 60)
    assert kv[0] < kv[1] < kv[2] <= 100 * (len(PROMPT) + 20)
    assert 0 < seconds[0] < seconds[1] < seconds[2]


def test_logits_are_those_of_the_base(ours: bench_ours.Ours) -> None:
    backend: Any = ours.model.backend
    plain = backend.plain(PROMPT, 8)
    other = [*plain[:5], (plain[5] + 1) % 10 + 20]
    scores = np.float64([backend.scores((*PROMPT, *other[:i])) for i in range(6)])  # [6, vocabulary]
    losses = np.log(np.exp(scores).sum(1)) - scores[range(6), other]
    nll, agreement = bench_ours.score(backend, PROMPT, other)
    assert nll == pytest.approx(losses.mean(), rel=1e-5)
    assert agreement == pytest.approx((scores.argmax(1) == other).mean())
    assert backend.slots == 0


def test_memory_speed_follows_the_clock(clock: Clock) -> None:
    def ticking() -> float:
        clock.now += 0.5
        return clock.now

    assert machine.read_speed(1 << 20, 1, ticking) == pytest.approx((1 << 20) / 0.5)
