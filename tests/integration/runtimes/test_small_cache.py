"""A cache of 8 or 16 bits has a quarter or half of the memory and nearly the same answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from helpers.toys.toy_bundles import toy_checkpoint

import hamburger_edge
from hamburger_edge import export_checkpoint as export
from hamburger_edge.bundle.manifest import PrecisionPlan
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import (
    ConfigError,
    HamburgerWarning,
    InputError,
    RuntimeUnavailableError,
    SessionError,
)
from hamburger_edge.export.parity.gate import LIMITS, check_parity, limits_of
from hamburger_edge.export.quantization.activation_ranges import measure_ranges
from hamburger_edge.export.quantization.calibration_batches import calibration_batches
from hamburger_edge.export.quantization.covariances import RANGES_EVERY
from hamburger_edge.models.architecture.llama import rotate
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend
from hamburger_edge.runtimes.onnx.sessions import Provider


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny` in float32 with an int8 cache; the export's parity gate has passed."""
    return export(
        "tiny", tmp_path_factory.mktemp("small") / "bundle", precision="fp32", kv_cache_dtype="int8"
    )


def test_parity_gate_passes_for_positions_by_slot(bundles: Callable[..., Path], tmp_path: Path) -> None:
    bundle = bundles(position_rule="slot", precision="int8")
    manifest = load_manifest(bundle)
    assert manifest.kv.dtype == "int8"  # the default at that precision
    check_parity(bundle, manifest, toy_checkpoint(tmp_path, position_rule="slot"))


def test_session_resumes_with_the_same_cache_type_only(small: Path, tiny: Path, tmp_path: Path) -> None:
    with hamburger_edge.load(small) as model:
        chat = model.chat(confidence=0.8, max_tokens=30)
        list(chat.send("Name four fruits."))
        chat.save(tmp_path / "talk")
        answer = [chunk.tokens for chunk in chat.send("How do I make tea?")]
        assert 4 * chat.stats.kv_bytes == chat.stats.slots * load_manifest(tiny).kv.bytes_per_slot
    with hamburger_edge.load(small) as model:
        resumed = model.resume(tmp_path / "talk")
        assert [chunk.tokens for chunk in resumed.send("How do I make tea?")] == answer
    with hamburger_edge.load(tiny) as model, pytest.raises(SessionError):
        model.resume(tmp_path / "talk")


def test_key_channels_stay_in_range_at_each_position() -> None:
    checkpoint = load_checkpoint("tiny")
    model, layer = checkpoint.model, 2
    scales = measure_ranges(checkpoint, inputs=False, cache=True).cache
    assert len(scales) == 2 * model.config.base.num_layers
    key_batches: list[torch.Tensor] = []
    hook = model.base.layers[layer].self_attn.k_proj.register_forward_hook(
        lambda *hook_values: key_batches.append(hook_values[2])
    )
    with torch.no_grad():
        for batch in calibration_batches(checkpoint, RANGES_EVERY):
            model(batch)
    hook.remove()
    D, heads = model.config.base.head_dim, model.config.base.num_kv_heads
    largest = torch.zeros(heads, D)
    for keys in key_batches:
        split = keys.unflatten(-1, (heads, D)).transpose(1, 2)  # [B, K, S, D]
        for angle in torch.linspace(0, 3.1, 12):
            rotated = rotate(split, angle.cos(), angle.sin())
            largest = torch.maximum(largest, rotated.abs().amax((0, 2)))
    limit = 127 * scales[f"key_scale.{layer}"].view(heads, D)
    assert (largest <= 1.0001 * limit).all()
    assert (largest > 0.9 * limit).float().mean() > 0.9  # and few ranges are too wide


def test_fp16_cache_keeps_answers_in_half_the_memory(tiny: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint("tiny")
    bundle = export(checkpoint, tmp_path / "bundle", precision="fp32", kv_cache_dtype="fp16", verify=False)
    manifest = load_manifest(bundle)
    assert 2 * manifest.kv.bytes_per_slot == load_manifest(tiny).kv.bytes_per_slot
    report = check_parity(bundle, manifest, checkpoint)
    assert report.agreement > 0.99
    assert report.identical >= report.prompts - 1
    for graph in ("base", "micro_decoder"):  # CUDA's attention supports 16 bits only
        nodes = onnx.load(bundle / f"{graph}.onnx", load_external_data=False).graph.node
        producers = {name: node for node in nodes for name in node.output}
        attention = [node for node in nodes if node.op_type == "GroupQueryAttention"]
        assert attention
        for node in attention:
            assert {producers[name].op_type for name in node.input[:3]} == {"Cast"}


def test_cuda_error_names_the_cache_type_it_needs(
    small: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bundle, dtype in ((small, "int8"), (tiny, "float32")):
        with pytest.raises(RuntimeUnavailableError, match=f"cache is {dtype}: .*--kv-cache-dtype fp16"):
            OnnxBackend(bundle, load_manifest(bundle), provider=Provider("cuda"))
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: both)
    with (
        pytest.warns(HamburgerWarning, match="'auto' takes the CPU: .*--kv-cache-dtype fp16"),
        hamburger_edge.load(small, provider="auto") as model,
    ):
        assert model.info.provider == "cpu"


@pytest.mark.parametrize(
    ("plan", "cache", "limits"),
    [
        (("fp32", "fp32", "fp32"), "int8", "int8"),
        (("int4", "int8", "int4"), "int8", "int4"),
        (("fp32", "fp32", "fp32"), "float16", "fp16"),
        (("fp32", "int8", "fp32"), "float32", "int8"),
        (("q8_0", "q8_0", "f16"), "float32", "int8"),
    ],
)
def test_parity_limits_follow_the_coarser_precision(
    plan: tuple[str, str, str], cache: str, limits: str
) -> None:
    assert limits_of(PrecisionPlan(*plan), cache) == LIMITS[limits]


def test_int8_cache_export_needs_a_tokenizer(tmp_path: Path) -> None:
    without_tokenizer = dataclasses.replace(toy_checkpoint(tmp_path / "toy"), tokenizer=None)
    with pytest.raises(ConfigError, match="give the checkpoint a tokenizer"):
        export(without_tokenizer, tmp_path / "a", precision="fp32", kv_cache_dtype="int8")
    assert not (tmp_path / "a").exists()


def test_other_cache_type_than_the_exported_is_refused(small: Path) -> None:
    hamburger_edge.load(small, kv_cache_dtype="int8").close()
    with pytest.raises(InputError, match="--kv-cache-dtype fp32, fp16, int8"):
        hamburger_edge.load(small, kv_cache_dtype="fp32")
