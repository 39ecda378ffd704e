"""What computes: chosen by name or by what the graphs need; where caches live; what falls back is said."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from toy_bundles import CHANGES, PORTABLE

from hamburger_edge.bundle.manifest import KVLayout
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import InputError, RuntimeUnavailableError
from hamburger_edge.runtimes.onnx import sessions
from hamburger_edge.runtimes.onnx.cache import InPlaceCache
from hamburger_edge.runtimes.onnx.kv_buffer import KVBuffer
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend, open_bundle
from hamburger_edge.runtimes.onnx.sessions import Provider, choose_provider

CPU, CUDA, COREML = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "CoreML"))


def has(monkeypatch: pytest.MonkeyPatch, *providers: str) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [*providers, CPU])


def test_providers_by_name(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**CHANGES)
    with pytest.raises(InputError, match="known: auto, cpu, cuda, coreml"):
        open_bundle(bundle, provider="tpu")
    missing = next(
        short
        for short, full in (("cuda", "CUDAExecutionProvider"), ("coreml", "CoreMLExecutionProvider"))
        if full not in ort.get_available_providers()
    )
    with pytest.raises(RuntimeUnavailableError, match="which has: cpu"):
        open_bundle(bundle, provider=missing)


@pytest.mark.parametrize(
    ("providers", "flavor", "chosen", "warning"),
    [
        ((CUDA, COREML), "fused", "cuda", None),
        ((CUDA,), "portable", "cuda", None),
        ((COREML,), "portable", "coreml", None),
        ((COREML,), "fused", "cpu", "CoreML does not know the operators of fused graphs"),
        ((), "portable", "cpu", "no accelerator"),
        (("TensorrtExecutionProvider",), "fused", "cpu", "no accelerator"),
    ],
)
def test_auto_takes_what_knows_the_graphs(
    providers: tuple[str, ...],
    flavor: str,
    chosen: str,
    warning: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CoreML, taken for a fused bundle, would hand nearly every node back to the CPU."""
    has(monkeypatch, *providers)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert choose_provider("auto", {"device_id": 1}, flavor).name == chosen
    assert [warning in str(w.message) for w in caught if warning] == ([True] if warning else [])
    assert bool(caught) == (warning is not None)


def test_nodes_that_fall_back_are_named(
    bundles: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a provider that every build has and that takes no such node."""
    other = "AzureExecutionProvider"
    if other not in ort.get_available_providers():
        pytest.skip("this onnxruntime has no provider but the CPU's")
    monkeypatch.setitem(sessions._NAMES, "coreml", other)
    bundle = bundles(**CHANGES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        backend, _, _ = open_bundle(bundle, provider="coreml", threads=1)
    [said] = [str(w.message) for w in caught if "base.onnx" in str(w.message)]
    assert "on the CPU instead of coreml: " in said
    assert "2 GroupQueryAttention" in said
    assert backend.macro([(5,)], [0], [0]).logits.size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_bundle(bundle, threads=1)


class Devices:
    """Stands for `OrtValue.ortvalue_from_numpy`: copies, as a device has them, and where they were wanted."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, int]] = set()
        self.make = ort.OrtValue.ortvalue_from_numpy

    def __call__(self, array: np.ndarray, device: str = "cpu", device_id: int = 0) -> Any:
        self.asked.add((device, device_id))
        return self.make(array.copy() if device != "cpu" else array)


def test_the_cache_is_on_the_device_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices()
    monkeypatch.setattr(ort.OrtValue, "ortvalue_from_numpy", devices)
    for given, wanted in (({}, 0), ({"device_id": 1}, 1), ({"device_id": "2"}, 2)):
        devices.asked.clear()
        provider = Provider("cuda", given)
        InPlaceCache(KVLayout(2, 1, 8, "float16"), 16, provider.device, provider.device_id)
        assert ("cuda", wanted) in devices.asked
        assert ("cuda", 0) not in devices.asked - {("cuda", wanted)}
    for wrong in ("first", -1, None, [1], 1.5):
        with pytest.raises(InputError, match="device_id must be a whole number"):
            _ = Provider("cuda", {"device_id": wrong}).device_id


def test_a_snapshot_off_a_device_brings_the_used_slots_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It made a copy of the whole capacity in host memory, of every layer, before it cut."""
    monkeypatch.setattr(ort.OrtValue, "ortvalue_from_numpy", Devices())
    layout = KVLayout(3, 2, 8, "float16")
    kv = KVBuffer(layout, 64, "cuda", 1)
    random = np.random.default_rng(0)
    saved = {kind: random.normal(size=(3, 2, 5, 8)).astype(np.float16) for kind in ("keys", "values")}
    kv.restore(saved, 5)
    kv.truncate(4)
    copied = kv.snapshot()
    for kind, array in saved.items():
        np.testing.assert_array_equal(copied[kind], array[:, :, :4])
        assert copied[kind].base is None
    assert not kv.keys.any()
    assert not kv.values.any()


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_start_is_not_pretended(
    bundles: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime itself goes on without it: this build has no CUDA, but says it had."""
    portable = bundles(**PORTABLE)
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: both)
    with pytest.raises(RuntimeUnavailableError, match="could not start here: check its driver"):
        OnnxBackend(portable, load_manifest(portable), provider=Provider("cuda"))
