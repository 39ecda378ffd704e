"""What an exported model lost, as a verdict: the gate passed a graph that was a nat worse at 4 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_bundles import CHANGES, toy_checkpoint

from hamburger_edge.bundle.manifest import PrecisionPlan
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import HamburgerWarning, ParityError
from hamburger_edge.export.parity import quality
from hamburger_edge.export.parity.gate import ParityReport, check_parity
from hamburger_edge.export.parity.quality import EXPECTED, Loss, Quality, compare, refused, worst_of
from hamburger_edge.export.pipeline import _tell
from hamburger_edge.export.quantization.activations import judging_texts
from hamburger_edge.loop.backend import MicroReadout, Readout
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend
from hamburger_edge.support.progress import no_progress


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return toy_checkpoint(tmp_path_factory.mktemp("toy"), **CHANGES)


def altered(checkpoint: Checkpoint, *, noise: float = 0.0, micro: float = 0.0) -> TorchBackend:
    """Scores off by so much, at random: a graph that is rounded too coarsely, and wired right."""
    backend = TorchBackend(checkpoint.model, cache_slots=256)
    macro, step, random = backend.macro, backend.micro, np.random.default_rng(0)

    def noisy_macro(*given):  # type: ignore[no-untyped-def]
        readout: Readout = macro(*given)
        off = noise * random.standard_normal(readout.logits.shape)
        return readout._replace(logits=readout.logits + off.astype(np.float32))

    def noisy_micro(token: int) -> MicroReadout:
        out = step(token)
        off = micro * random.standard_normal(out.logits.shape)
        return out._replace(logits=out.logits + off.astype(np.float32))

    backend.macro, backend.micro = noisy_macro, noisy_micro  # type: ignore[method-assign, assignment]
    return backend


def measured(checkpoint: Checkpoint, exported: TorchBackend, precision: str = "int4") -> Quality:
    reference = TorchBackend(checkpoint.model, cache_slots=256)
    return compare(checkpoint, reference, exported, precision, no_progress)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "judging_texts", lambda checkpoint: list(judging_texts(checkpoint))[::7])


def test_the_same_model_loses_nothing(checkpoint: Checkpoint) -> None:
    found = measured(checkpoint, altered(checkpoint), "fp32")
    assert found.base == Loss(1.0, 0.0)
    assert found.micro == Loss(1.0, pytest.approx(0.0, abs=1e-9))  # the reference takes all steps at once
    assert found.as_known
    assert found.positions > 50
    assert found.further_positions > found.positions  # groups of 1, 2, 3, 4
    assert "good: loses no more than fp32" in str(found)


def test_a_loss_is_measured_and_judged(checkpoint: Checkpoint) -> None:
    """Independent noise of deviation s moves a flat distribution by about s^2 / 2 nats."""
    some = measured(checkpoint, altered(checkpoint, noise=0.3))
    assert 0 < some.base.divergence < 0.3**2
    assert some.micro == Loss(1.0, pytest.approx(0.0, abs=1e-9))
    more = measured(checkpoint, altered(checkpoint, noise=0.3), "int8")
    assert not more.as_known
    assert refused(some) is None
    assert "poor: loses more than int8 is known to (0.02 nats, its token at 95.0%)" in str(more)


def test_only_tokens_that_the_original_proposes_count(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task model at 4 bits was called poor for tokens that no draft has: its base lost 0.001 nats."""
    reference, prompt = TorchBackend(checkpoint.model, cache_slots=256), [(5,), (6,)]
    readout = reference.macro(prompt, [0, 1], [1])
    [[scored]] = reference.micro_groups(readout.features, [(7,)])
    assert reference.info.draft_vocab is not None
    best, worst = (int(reference.info.draft_vocab[place]) for place in scored.logits.argsort()[[-1, 0]])
    monkeypatch.setattr(quality, "FEWEST_PROPOSED", 1)
    texts = [(prompt, [(7, best)]), (prompt, [(7, worst)])]
    monkeypatch.setattr(quality, "judging_texts", lambda _: texts)
    assert measured(checkpoint, altered(checkpoint, micro=3.0)).further_positions == 1


@pytest.mark.parametrize("part", ["noise", "micro"])
def test_what_is_beyond_use_is_refused(part: str, checkpoint: Checkpoint) -> None:
    beyond = refused(measured(checkpoint, altered(checkpoint, **{part: 3.0})))
    assert beyond is not None
    assert beyond[0] == {"noise": "base", "micro": "micro_decoder"}[part]


def test_the_gate_refuses_it(
    checkpoint: Checkpoint, bundles: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All wires in order, and less than the nat worse that is let through for them."""
    bundle = bundles(**CHANGES)
    macro, random = OnnxBackend.macro, np.random.default_rng(0)

    def noisy(*given):  # type: ignore[no-untyped-def]
        readout = macro(*given)
        return readout._replace(logits=readout.logits + random.normal(0, 1.1, readout.logits.shape))

    monkeypatch.setattr(OnnxBackend, "macro", noisy)
    manifest = load_manifest(bundle)
    coarse = replace(manifest, precision=replace(manifest.precision, graft="int4"))
    with pytest.raises(ParityError, match=r"^base\.logits: .* nats from PyTorch on other text"):
        check_parity(bundle, coarse, checkpoint)


def test_a_plan_is_as_good_as_its_coarsest_part() -> None:
    assert worst_of(PrecisionPlan("fp16", "int8", "fp16"), "float32") == "int8"
    assert worst_of(PrecisionPlan("fp32", "fp32", "fp32"), "int8") == "int8"
    assert worst_of(PrecisionPlan("q4_1", "q8_0", "f16"), "float32") == "q4_1"


def test_an_export_tells_of_a_poor_one(tmp_path: Path) -> None:
    poor = Quality("int8", 100, Loss(0.8, 0.1), 0, None, EXPECTED["int8"])
    report = ParityReport("int8", (), 1, 1, None, 1.0, 0.0, 1.0, 1.0, poor)
    with pytest.warns(HamburgerWarning, match="quality: poor: loses more than int8"):
        _tell(report)
    assert report.to_json()["quality"]["verdict"] == poor.verdict
    assert "quality         0.1000 nats from PyTorch, its token at 80.0% of 100 positions" in str(report)
