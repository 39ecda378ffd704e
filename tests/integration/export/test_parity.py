"""The gate passes what agrees, says where what does not, and judges how much was lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.toys.exports import export
from helpers.toys.toy_bundles import CHANGES, ONE_LAYER, PLAIN, toy_checkpoint

from hamburger_edge.bundle.manifest import PrecisionPlan
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, CheckpointError, HamburgerWarning, InputError, ParityError
from hamburger_edge.export.parity import gate, quality
from hamburger_edge.export.parity.gate import ParityReport, check_parity, verify
from hamburger_edge.export.parity.graphs import GraphParity, Tokens
from hamburger_edge.export.parity.quality import EXPECTED, Loss, Quality, compare, refused, worst_of
from hamburger_edge.export.parity.text import fixed_prompts, read
from hamburger_edge.export.pipeline import _tell
from hamburger_edge.export.quantization.calibration_batches import calibration_texts, judging_texts
from hamburger_edge.loop.backend import MicroReadout
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    write_calibration,
)
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend
from hamburger_edge.support.progress import no_progress


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return toy_checkpoint(tmp_path_factory.mktemp("parity"), **CHANGES)


def altered(checkpoint: Checkpoint, *, noise: float = 0.0, micro: float = 0.0) -> TorchBackend:
    """Add random noise to the scores, like a correct graph with too coarse rounding."""
    backend = TorchBackend(checkpoint.model, cache_slots=256)
    macro, step, random = backend.macro, backend.micro, np.random.default_rng(0)

    def off(logits: Any, deviation: float) -> Any:
        return logits + (deviation * random.standard_normal(logits.shape)).astype(np.float32)

    def noisy_macro(*given: Any) -> Any:
        readout = macro(*given)
        return readout._replace(logits=off(readout.logits, noise))

    def noisy_micro(token: int) -> MicroReadout:
        out = step(token)
        return out._replace(logits=off(out.logits, micro))

    backend.macro, backend.micro = noisy_macro, noisy_micro  # type: ignore[method-assign]
    return backend


def measured(checkpoint: Checkpoint, exported: TorchBackend, precision: str = "int4") -> Quality:
    reference = TorchBackend(checkpoint.model, cache_slots=256)
    return compare(checkpoint, reference, exported, precision, no_progress)


@pytest.mark.parametrize(
    "made",
    [{}, {"precision": "fp16"}, {"precision": "int8"}, {"precision": "int4"}],
    ids=["fp32", "fp16", "int8", "int4"],
)
def test_equal_model_passes_the_gate_with_equal_tokens(
    made: dict[str, str], bundles: Callable[..., Path], checkpoint: Checkpoint
) -> None:
    bundle = bundles(**made, **CHANGES)
    report = check_parity(bundle, load_manifest(bundle), checkpoint)
    assert [graph.name for graph in report.graphs] == ["embedder", "base", "micro_decoder"]
    assert (report.first_divergence is None) == (report.identical == report.prompts)
    assert report.logit_error > 0
    assert report.perplexity > 1
    if not made:
        assert report.prompts == report.identical >= 7
        assert all(graph.max_abs_error < 1e-4 for graph in report.graphs)
    facts = json.loads(json.dumps(report.to_json()))
    assert {"ok", "precision", "graphs", "prompts", "identical", "first_divergence"} <= set(facts)
    assert f"passed at {made.get('precision', 'fp32')}" in str(report)


def shift_first(value: torch.Tensor) -> torch.Tensor:
    return torch.cat([value[:1] + 0.5, value[1:]])


@pytest.mark.parametrize(
    ("made", "weight", "change", "message"),
    [
        ({}, "embedder.query.weight", shift_first, r"embedder\.embeddings of [234] tokens: error"),
        ({}, "base.layers.1.mlp.up_proj.weight", shift_first, r"base\.logits: error"),
        ({}, "stop_head.4.bias", shift_first, r"base\.p_stop: error .* worst in call \d+ at \[\d+.*\]: "),
        ({}, "micro.layers.0.self_attn.q_proj.weight", shift_first, r"micro_decoder\.logits: error"),
        ({"precision": "int4"}, "stop_head.4.weight", torch.neg, r"^base\.p_stop: .* of its spread"),
        (
            {"precision": "int4"},
            "stop_head.4.bias",
            lambda x: x + 1,
            r"^base\.p_stop: error .* of its spread",
        ),
    ],
)
def test_difference_is_named_with_tensor_and_size(
    made: dict[str, str], weight: str, change: Any, message: str, bundles: Callable[..., Path], tmp_path: Path
) -> None:
    other = toy_checkpoint(tmp_path, **CHANGES)
    tensor = other.model.get_parameter(weight)
    tensor.data = change(tensor.data)
    bundle = bundles(**made, **CHANGES)
    with pytest.raises(ParityError, match=message):
        check_parity(bundle, load_manifest(bundle), other)


def test_drafts_are_compared_on_text(checkpoint: Checkpoint) -> None:
    reference = TorchBackend(checkpoint.model, cache_slots=200)
    text = [([5, 6, 7], [(8, 9, 10), (11, 12), (13,)])]
    same, wrong = (read(reference, altered(checkpoint, micro=micro), text) for micro in (0.0, 3.0))
    assert same.surprise == wrong.surprise
    assert abs(same.micro_surprise) < 1e-6 < abs(wrong.micro_surprise)  # the reference: one call


def test_gate_uses_prompts_of_the_task(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A task model's scores mean nothing after questions of a chat, and no model is fitted to noise."""
    own = replace(checkpoint, folder=tmp_path)
    first = [token for parts in list(calibration_texts(own))[8] for groups in parts for token in groups]
    assert Tokens(own, 1).take(len(first)) == first
    text = [CalibrationExample(f"task {n}", "word " * (n + 1)) for n in range(18)]
    write_calibration(tmp_path / CALIBRATION, text)
    longest = sorted(judging_texts(own), key=lambda one: len(one[1]))[::-1]
    assert fixed_prompts(own) == [[token for (token,) in prompt] for prompt, _ in longest] != []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_group_tokens", 3),
        ("stop_rule", "after"),
        ("eos_ids", (5,)),
        ("draft_vocab", tuple(range(40))),
        ("context_length", 2601),
        ("merge_residual", "last"),
    ],
)
def test_other_model_is_refused(
    name: str, value: Any, bundles: Callable[..., Path], checkpoint: Checkpoint
) -> None:
    bundle = bundles(**CHANGES)
    manifest = load_manifest(bundle)
    other = replace(manifest, model=replace(manifest.model, **{name: value}))
    with pytest.raises(ParityError, match=f"the bundle's {name} is .*another model"):
        check_parity(bundle, other, checkpoint)


def test_other_tokenizer_or_template_is_refused(
    bundles: Callable[..., Path], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    bundle = bundles(**CHANGES)
    template = {**(checkpoint.chat_template or {}), "before_answer": "A: "}
    with pytest.raises(ParityError, match="chat_template is not the checkpoint's"):
        check_parity(bundle, load_manifest(bundle), replace(checkpoint, chat_template=template))
    tokenizer = json.loads((bundle / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    other = replace(checkpoint, tokenizer=tmp_path / "tokenizer.json")
    with pytest.raises(ParityError, match="tokenizer is not the checkpoint's"):
        check_parity(bundle, load_manifest(bundle), other)


@pytest.mark.parametrize(
    ("changes", "system"),
    [(PLAIN, ""), ({"max_group_tokens": 26, "merge_residual": "last"}, "much to say, " * 300)],
    ids=["a plain model", "long groups"],
)
def test_unusual_checkpoints_pass(changes: dict[str, Any], system: str, tmp_path: Path) -> None:
    """Groups as short and as long as may be; a system text that is cut; end tokens named twice count once."""
    checkpoint = toy_checkpoint(tmp_path, **{**CHANGES, **ONE_LAYER, **changes, "eos_ids": (2, 2, 5)})
    template = {**(checkpoint.chat_template or {}), "default_system": system}
    bundle = export(replace(checkpoint, chat_template=template), tmp_path / "bundle", precision="fp32")
    model = load_manifest(bundle).model
    assert (model.max_group_tokens, model.eos_ids) == (changes["max_group_tokens"], (2, 5))


def test_verify_needs_the_checkpoint_and_the_files_of_the_backend(
    bundles: Callable[..., Path], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        verify(bundles(**CHANGES), against=tmp_path / "nothing")
    with pytest.raises(BundleError, match=r"no GGUF files.*--format gguf"):
        verify(bundles(**CHANGES), backend="llamacpp")
    with pytest.raises(InputError, match="compared as run by onnx or llamacpp"):
        check_parity(tmp_path, load_manifest(bundles(**CHANGES)), checkpoint, backend="torch")


# -- what a model lost: the gate passed a graph that was a nat worse at 4 bits -------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "judging_texts", lambda checkpoint: list(judging_texts(checkpoint))[::7])


def test_loss_is_measured_and_limited(checkpoint: Checkpoint, few: None) -> None:
    """Independent noise of deviation s moves a flat distribution by about s^2 / 2 nats."""
    nothing = Loss(1.0, pytest.approx(0.0, abs=1e-9))  # the reference takes all micro steps in one call
    found = measured(checkpoint, altered(checkpoint), "fp32")
    assert found.base == Loss(1.0, 0.0)
    assert found.micro == nothing
    assert found.as_known
    assert found.positions > 50
    assert found.further_positions > found.positions  # groups of 1, 2, 3, 4
    assert "good: loses no more than fp32" in str(found)
    some = measured(checkpoint, altered(checkpoint, noise=0.3))
    assert 0 < some.base.divergence < 0.3**2
    assert some.micro == nothing
    assert list(refused(some)) == []
    more = measured(checkpoint, altered(checkpoint, noise=0.3), "q8_0")
    assert not more.as_known
    assert "poor: loses more than q8_0 is known to (0.02 nats, its token at 95.0%)" in str(more)
    most = measured(checkpoint, altered(checkpoint, noise=0.5), "int8")
    assert "poor: loses more than int8 is known to (0.05 nats, its token at 88.0%)" in str(most)
    [(graph, _)] = refused(measured(checkpoint, altered(checkpoint, micro=3.0)))
    assert graph == "micro_decoder"


def test_only_drafts_of_the_original_count(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_gate_refuses_a_too_large_loss(
    checkpoint: Checkpoint, bundles: Callable[..., Path], few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All wires in order, and less than the nat worse that is let through for them."""
    bundle = bundles(**CHANGES)
    macro, random = OnnxBackend.macro, np.random.default_rng(0)

    def noisy(*given: Any) -> Any:
        readout = macro(*given)
        return readout._replace(logits=readout.logits + random.normal(0, 1.1, readout.logits.shape))

    monkeypatch.setattr(OnnxBackend, "macro", noisy)
    manifest = load_manifest(bundle)
    coarse = replace(manifest, precision=replace(manifest.precision, graft="int4"))
    with pytest.raises(ParityError, match=r"^base\.logits: .* nats from PyTorch on other text"):
        check_parity(bundle, coarse, checkpoint)


@pytest.mark.parametrize("mode", ["merge", "hybrid", "verify", "plain", None])
def test_bad_micro_decoder_is_refused_only_if_its_tokens_are_unchecked(
    mode: Any,
    checkpoint: Checkpoint,
    bundles: Callable[..., Path],
    few: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model tuned for minutes, which verifies, could not be exported: its drafts were 0.431 nats off."""
    bundle = bundles(**CHANGES)
    micro, random = OnnxBackend.micro, np.random.default_rng(0)

    def noisy(*given: Any) -> MicroReadout:
        readout = micro(*given)
        return readout._replace(logits=readout.logits + random.normal(0, 1.5, readout.logits.shape))

    monkeypatch.setattr(OnnxBackend, "micro", noisy)
    monkeypatch.setattr(gate, "check_micro_decoder", lambda *_: GraphParity("micro_decoder", 0.0, 0.0))
    manifest = load_manifest(bundle)
    coarse = replace(
        manifest,
        precision=replace(manifest.precision, graft="int4"),
        recommended=None if mode is None else Recommended.of(mode),
    )
    if mode in ("merge", "hybrid"):
        with pytest.raises(ParityError, match=r"^micro_decoder\.logits: .* nats"):
            check_parity(bundle, coarse, checkpoint)
        return
    report = check_parity(bundle, coarse, checkpoint)
    assert report.warnings
    assert all(each.startswith("micro_decoder.logits: ") for each in report.warnings)
    assert "warning         micro_decoder.logits: " in str(report)
    with pytest.warns(HamburgerWarning, match=r"micro_decoder\.logits: .* costs speed only"):
        _tell(report)


def test_limits_follow_the_coarsest_part_of_a_plan() -> None:
    assert worst_of(PrecisionPlan("fp16", "int8", "fp16"), "float32") == "int8"
    assert worst_of(PrecisionPlan("fp32", "fp32", "fp32"), "int8") == "int8"


def test_export_warns_of_a_poor_quality(tmp_path: Path) -> None:
    poor = Quality("int8", 100, Loss(0.8, 0.1), 0, None, EXPECTED["int8"])
    report = ParityReport("int8", (), 1, 1, None, 1.0, 0.0, 1.0, 1.0, poor)
    with pytest.warns(HamburgerWarning, match="quality: poor: loses more than int8"):
        _tell(report)
    assert report.to_json()["quality"]["verdict"] == poor.verdict
    assert "quality         0.1000 nats from PyTorch, its token at 80.0% of 100 positions" in str(report)
