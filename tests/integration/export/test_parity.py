"""The gate passes what agrees, and says where what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exports import export
from places import names
from toy_bundles import CHANGES, ONE_LAYER, toy_checkpoint

from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import BundleError, ParityError
from hamburger_edge.export.parity.gate import LIMITS, check_parity, verify
from hamburger_edge.export.parity.graphs import Tokens
from hamburger_edge.export.parity.text import fixed_prompts, read, stop_error
from hamburger_edge.export.quantization.activations import calibration_texts, judging_texts
from hamburger_edge.loop.backend import MicroReadout
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    write_calibration,
)
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.runtimes.onnx.onnx_parts import OnnxMicroDecoder
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return toy_checkpoint(tmp_path_factory.mktemp("parity"), **CHANGES)


def test_float32_agrees_word_for_word(bundles: Callable[..., Path], checkpoint: Checkpoint) -> None:
    bundle = bundles(**CHANGES)
    report = check_parity(bundle, load_manifest(bundle), checkpoint)
    assert report.prompts == report.identical >= 7
    assert report.first_divergence is None
    assert [graph.name for graph in report.graphs] == ["embedder", "base", "micro_decoder"]
    assert all(graph.max_abs_error < 1e-4 for graph in report.graphs)
    facts = json.loads(json.dumps(report.to_json()))
    assert {"ok", "precision", "graphs", "prompts", "identical", "first_divergence"} <= set(facts)
    assert "passed at fp32" in str(report)


@pytest.mark.parametrize("precision", ["fp16", "int8", "int4"])
def test_lower_precisions_report_how_far_off_they_are(
    precision: str, bundles: Callable[..., Path], checkpoint: Checkpoint
) -> None:
    bundle = bundles(precision=precision, **CHANGES)
    report = check_parity(bundle, load_manifest(bundle), checkpoint)
    assert report.logit_error > 0
    assert report.perplexity > 1
    if report.identical < report.prompts:
        assert report.first_divergence is not None


def shift_first(value: torch.Tensor) -> torch.Tensor:
    return torch.cat([value[:1] + 0.5, value[1:]])


@pytest.mark.parametrize(
    ("precision", "weight", "change", "message"),
    [
        ("fp32", "embedder.query.weight", shift_first, r"embedder\.embeddings of [234] tokens: error"),
        ("fp32", "base.layers.1.mlp.up_proj.weight", shift_first, r"base\.logits: error"),
        ("fp32", "stop_head.4.bias", shift_first, r"base\.p_stop: error .* worst in call \d+ at \[\d+.*\]: "),
        ("fp32", "micro.layers.0.self_attn.q_proj.weight", shift_first, r"micro_decoder\.logits: error"),
        ("int4", "stop_head.4.weight", torch.neg, r"^base\.p_stop: error .* of its spread"),
        ("int4", "stop_head.4.bias", lambda value: value + 1, r"^base\.p_stop: error .* of its spread"),
    ],
)
def test_a_difference_is_named(
    precision: str, weight: str, change: Any, message: str, bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """Also of a stop head at 4 bits."""
    other = toy_checkpoint(tmp_path, **CHANGES)
    tensor = other.model.get_parameter(weight)
    tensor.data = change(tensor.data)
    bundle = bundles(**CHANGES) if precision == "fp32" else bundles(precision=precision, **CHANGES)
    with pytest.raises(ParityError, match=message):
        check_parity(bundle, load_manifest(bundle), other)


@pytest.mark.parametrize(
    "change",
    [
        lambda logits: np.random.default_rng(0).permutation(logits),
        lambda logits: np.full_like(logits, logits.mean()),
        lambda logits: np.roll(logits, 1),
    ],
    ids=["places", "constant", "one place on"],
)
def test_at_4_bits_wrong_proposals_are_still_refused(
    change: Callable[..., np.ndarray],
    bundles: Callable[..., Path],
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With as much of an offset as trained models have, which a softmax does not see."""
    run = OnnxMicroDecoder.run

    def wrong(self: OnnxMicroDecoder, token: int) -> MicroReadout:
        out = run(self, token)
        return MicroReadout(change(out.logits).astype(np.float32), out.p_stop)

    monkeypatch.setattr(OnnxMicroDecoder, "run", wrong)
    bundle = bundles(precision="int4", **CHANGES)
    with pytest.raises(ParityError, match=r"^micro_decoder\.logits: "):
        check_parity(bundle, load_manifest(bundle), checkpoint)


def test_proposals_are_judged_on_text_too(checkpoint: Checkpoint) -> None:
    """Equal but for the micro decoder's logits, which are those of other tokens."""
    reference, equal, other = (TorchBackend(checkpoint.model, cache_slots=200) for _ in range(3))
    run = other.micro

    def wrong_tokens(token: int) -> MicroReadout:
        out = run(token)
        return MicroReadout(np.roll(out.logits, 1), out.p_stop)

    other.micro = wrong_tokens  # type: ignore[method-assign]
    text = [([5, 6, 7], [(8, 9, 10), (11, 12), (13,)])]
    same, wrong = read(reference, equal, text), read(reference, other, text)
    assert same.surprise == wrong.surprise
    assert abs(same.micro_surprise) < 1e-6 < abs(wrong.micro_surprise)  # the reference reads all at once


def test_a_constant_is_never_a_stop_probability() -> None:
    for want in ([0.0, 0.02, 0.1], [0.3, 0.5, 0.9], [0.5, 0.5, 0.7]):
        for constant in (0.0, 0.5, 1.0, float(np.mean(want))):
            error = stop_error(np.full(3, constant), np.array(want))
            assert error > LIMITS["int4"].stop


def test_the_gate_asks_what_the_model_was_made_for(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A task model's scores mean nothing after questions of a chat, and no model is fitted to noise.

    The gate refused bundles of two built-in models at int8 for their errors on such text.
    """
    own = replace(checkpoint, path=tmp_path)
    general = list(calibration_texts(own))
    first = [token for parts in general[8:10] for groups in parts for group in groups for token in group]
    assert Tokens(own, 1).take(20) == first[:20]
    text = [CalibrationExample(f"task {n}", "word " * (n + 1)) for n in range(18)]
    write_calibration(tmp_path / CALIBRATION, text)
    longest = sorted(judging_texts(own), key=lambda one: len(one[1]))[::-1]
    assert fixed_prompts(own) == [[token for (token,) in prompt] for prompt, _ in longest] != []
    assert fixed_prompts(own) != fixed_prompts(checkpoint)


def test_coarser_embeddings_pass_with_a_float32_base(checkpoint: Checkpoint, tmp_path: Path) -> None:
    bundle = export(checkpoint, tmp_path / "bundle", precision="fp32", keep_head="int8")
    plan = load_manifest(bundle).precision
    assert (plan.head, plan.frequent_rows) == ("int8", 0)  # all rows alike, as asked for


def test_another_model_is_refused(bundles: Callable[..., Path], tmp_path: Path) -> None:
    bundle = bundles(**CHANGES)
    other = toy_checkpoint(tmp_path, **CHANGES, max_group_tokens=3)
    with pytest.raises(ParityError, match="max_group_tokens is 4, the checkpoint's 3"):
        check_parity(bundle, load_manifest(bundle), other)


@pytest.mark.parametrize("backend", ["onnx", "llamacpp"])
def test_merging_onto_the_last_token_passes_and_onto_the_mean_is_refused(
    backend: str, bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """The same weights, a slot begun otherwise: the embedder's figures differ, whatever the manifest says."""
    last = toy_checkpoint(tmp_path, **CHANGES, merge_residual="last")
    if backend == "onnx":
        bundle = bundles(**CHANGES, merge_residual="last")
    else:
        pytest.importorskip("llama_cpp")
        bundle = export(last, tmp_path / "bundle", formats=["gguf"], precision="f32", verify=False)
    manifest = load_manifest(bundle)
    assert manifest.model.merge_residual == "last"
    check_parity(bundle, manifest, last, backend=backend)
    mean = toy_checkpoint(tmp_path / "mean", **CHANGES)
    with pytest.raises(ParityError, match="the bundle's merge_residual is last, the checkpoint's mean"):
        check_parity(bundle, manifest, mean, backend=backend)
    if backend == "onnx":
        other = replace(manifest, model=replace(manifest.model, merge_residual="mean"))
        with pytest.raises(ParityError, match=r"embedder\.embeddings of 2 tokens: error"):
            check_parity(bundle, other, mean)


@pytest.mark.parametrize("change", ["draft_vocab", "stop_rule"])
def test_another_draft_vocab_or_stop_rule_is_refused(
    change: str, bundles: Callable[..., Path], checkpoint: Checkpoint
) -> None:
    bundle = bundles(precision="int4", **CHANGES)
    manifest = load_manifest(bundle)
    rule = {"before": "after", "after": "before"}[manifest.model.stop_rule]
    value = rule if change == "stop_rule" else tuple(reversed(manifest.model.draft_vocab or ()))
    other = replace(manifest, model=replace(manifest.model, **{change: value}))
    with pytest.raises(ParityError, match=f"the bundle's {change} is"):
        check_parity(bundle, other, checkpoint)


@pytest.mark.parametrize(("max_group_tokens", "system"), [(1, ""), (26, "much to say, " * 300)], ids=[1, 26])
def test_odd_checkpoints_pass(max_group_tokens: int, system: str, tmp_path: Path) -> None:
    """Groups as short and as long as may be; a system text that is cut; end tokens named twice count once."""
    odd = {"max_group_tokens": max_group_tokens, "eos_ids": (2, 2, 5)}
    checkpoint = toy_checkpoint(tmp_path, **{**CHANGES, **ONE_LAYER, **odd})
    template = {**(checkpoint.chat_template or {}), "default_system": system}
    bundle = export(replace(checkpoint, chat_template=template), tmp_path / "bundle", precision="fp32")
    model = load_manifest(bundle).model
    assert (model.max_group_tokens, model.eos_ids) == (max_group_tokens, (2, 5))


def test_a_failed_gate_leaves_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced from one model, compared with another."""
    from hamburger_edge.export import pipeline as module

    gate = module.check_parity
    smallest = {**CHANGES, **ONE_LAYER}

    def compare_with_another(folder, manifest, given, **more):  # type: ignore[no-untyped-def]
        other = toy_checkpoint(tmp_path / "other", **smallest)
        with torch.no_grad():
            other.model.base.norm.weight[3] += 1
        return gate(folder, manifest, replace(given, model=other.model), **more)

    monkeypatch.setattr(module, "check_parity", compare_with_another)
    with pytest.raises(ParityError, match=r"base\.logits"):
        export(toy_checkpoint(tmp_path / "toy", **smallest), tmp_path / "bundle", precision="fp32")
    assert names(tmp_path) == ["other", "toy"]


def test_verify_reads_the_files_first(bundles: Callable[..., Path], tmp_path: Path) -> None:
    """A checkpoint in memory has no folder to compare with; the message says what to give."""
    from hamburger_edge.errors import CheckpointError

    with pytest.raises(CheckpointError, match="no such folder"):
        verify(bundles(**CHANGES), against=tmp_path / "nothing")
    with pytest.raises(BundleError, match=r"no GGUF files.*--format gguf"):
        verify(bundles(**CHANGES), backend="llamacpp")
