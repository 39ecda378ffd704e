"""Execution providers: the choice by name or graphs, the device of the cache, and fallback to the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from helpers.toys.toy_bundles import CHANGES, PORTABLE

from hamburger_edge.bundle.manifest import KVLayout
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import HamburgerWarning, InputError, RuntimeUnavailableError
from hamburger_edge.runtimes.onnx import sessions
from hamburger_edge.runtimes.onnx.cache import InPlaceCache
from hamburger_edge.runtimes.onnx.kv_buffer import KVBuffer
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend, open_bundle
from hamburger_edge.runtimes.onnx.sessions import Provider, choose_provider

CPU, CUDA, COREML = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "CoreML"))


def has(monkeypatch: pytest.MonkeyPatch, *providers: str) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [*providers, CPU])


def test_unknown_or_missing_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch)
    with pytest.raises(InputError, match="known: auto, cpu, cuda, coreml"):
        choose_provider("tpu", None)
    with pytest.raises(RuntimeUnavailableError, match="which has: cpu"):
        choose_provider("cuda", None)


@pytest.mark.parametrize(
    ("providers", "flavor", "chosen", "warning"),
    [
        ((CUDA, COREML), "fused", "cuda", None),
        ((CUDA, COREML), "portable", "cuda", None),
        ((COREML,), "portable", "coreml", None),
        ((COREML,), "fused", "cpu", "CoreML does not know the operators of fused graphs"),
        (("TensorrtExecutionProvider",), "portable", "cpu", "no accelerator"),
    ],
)
def test_auto_chooses_a_provider_that_supports_the_graphs(
    providers: tuple[str, ...],
    flavor: str,
    chosen: str,
    warning: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CoreML would return nearly every node of a fused bundle to the CPU."""
    has(monkeypatch, *providers)
    expected = pytest.warns(HamburgerWarning, match=warning) if warning else contextlib.nullcontext()
    with expected:
        assert choose_provider("auto", {"device_id": 1}, flavor).name == chosen


def test_nodes_on_the_cpu_are_named_in_a_warning(
    bundles: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Azure provider is in each build and supports none of these nodes."""
    other = "AzureExecutionProvider"
    if other not in ort.get_available_providers():
        pytest.skip("this onnxruntime has no provider but the CPU's")
    monkeypatch.setitem(sessions._NAMES, "coreml", other)
    bundle = bundles(**CHANGES)
    with pytest.warns(HamburgerWarning) as caught:
        backend, _, _ = open_bundle(bundle, provider="coreml", threads=1)
    [message] = [str(w.message) for w in caught if "base.onnx" in str(w.message)]
    assert "on the CPU instead of coreml: " in message
    assert "2 GroupQueryAttention" in message
    assert backend.macro([(5,)], [0], [0]).logits.size
    open_bundle(bundle, threads=1)  # a warning would be an error here


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """The devices of all new arrays; a copy in host memory replaces an array on a device."""
    requested: set[tuple[str, int]] = set()
    make = ort.OrtValue.ortvalue_from_numpy

    def ortvalue_from_numpy(array: np.ndarray, device: str = "cpu", device_id: int = 0) -> Any:
        requested.add((device, device_id))
        return make(array.copy() if device != "cpu" else array)

    monkeypatch.setattr(ort.OrtValue, "ortvalue_from_numpy", ortvalue_from_numpy)
    return requested


def test_cache_is_on_the_requested_device(devices: set[tuple[str, int]]) -> None:
    for options, device_id in (({}, 0), ({"device_id": 1}, 1), ({"device_id": "2"}, 2)):
        devices.clear()
        provider = Provider("cuda", options)
        InPlaceCache(KVLayout(2, 1, 8, "float16"), 16, provider.device, provider.device_id)
        assert devices - {("cpu", 0)} == {("cuda", device_id)}
    for wrong in ("first", -1, None, [1], 1.5):
        with pytest.raises(InputError, match="device_id must be a whole number"):
            _ = Provider("cuda", {"device_id": wrong}).device_id


@pytest.mark.usefixtures("devices")
def test_snapshot_of_a_device_copies_used_slots_only() -> None:
    """It once copied every layer's whole capacity to host memory."""
    kv = KVBuffer(KVLayout(3, 2, 8, "float16"), 64, "cuda", 1)
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
def test_provider_that_does_not_start_is_an_error(
    bundles: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime would continue on the CPU. Here a build without CUDA lists CUDA."""
    portable = bundles(**PORTABLE)
    has(monkeypatch, CUDA)
    with pytest.raises(RuntimeUnavailableError, match="could not start here: check its driver"):
        OnnxBackend(portable, load_manifest(portable), provider=Provider("cuda"))
