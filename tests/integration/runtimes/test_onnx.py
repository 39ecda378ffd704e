"""ONNX Runtime computes in buffers of a fixed address and size, and its errors become typed ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.toys.toy_bundles import CHANGES, PORTABLE

from hamburger_edge import load as open_model
from hamburger_edge.bundle.manifest import KVLayout
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import ContextFullError, InputError, RuntimeFailureError, SessionError
from hamburger_edge.runtimes.onnx import sessions
from hamburger_edge.runtimes.onnx.kv_buffer import KVBuffer
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend, open_bundle

PROMPT = [(5,), (9,), (11,), (3,), (80,)]
INT8 = {"precision": "int8", **CHANGES}
# prints how many bytes the last 1,500 steps added: to the process, and to Python's objects
TWO_THOUSAND_STEPS = """
import gc, json, sys, tracemalloc
from pathlib import Path
import psutil
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend

bundle = Path(sys.argv[1])
ours = OnnxBackend(bundle, load_manifest(bundle), threads=1)
used = []
tracemalloc.start()
for step in range(2000):
    readout = ours.macro([(step % 90,)], [step], [0])
    ours.micro_begin(readout.features[0])
    ours.micro(3)
    ours.micro(4)
    if step in (500, 1999):
        gc.collect()
        used.append((psutil.Process().memory_info().rss, tracemalloc.get_traced_memory()[0]))
print(json.dumps([after - before for before, after in zip(*used)]))
"""


@pytest.fixture
def ours(request: pytest.FixtureRequest, bundles: Callable[..., Path]) -> OnnxBackend:
    bundle = bundles(**getattr(request, "param", CHANGES))
    return OnnxBackend(bundle, load_manifest(bundle), threads=1)


@pytest.mark.parametrize(
    ("ours", "kind"), [(CHANGES, np.float32), (INT8, np.int8)], indirect=["ours"], ids=["fp32", "int8"]
)
def test_keys_and_values_are_written_in_place(ours: OnnxBackend, kind: type) -> None:
    kv = ours.base.cache.kv
    address = kv.keys.ctypes.data
    ours.macro([(5,), (6, 7)], [0, 2], [])
    ours.macro([(8,), (9,), (10, 11)], [3, 4, 6], [2])
    assert kv.keys.ctypes.data == address
    assert kv.keys.dtype == kind
    assert kv.keys[:, :, :, :5].any(axis=(0, 1, 2, 4)).all()
    assert not kv.keys[:, :, :, 5:].any()
    assert not kv.values[:, :, :, 5:].any()
    written = kv.keys[:, :, :, :5].nbytes + kv.values[:, :, :, :5].nbytes
    assert kv.used * kv.layout.bytes_per_slot == 5 * ours.info.kv_bytes_per_slot == written


@pytest.mark.parametrize("ours", [CHANGES, PORTABLE], indirect=True, ids=["fused", "portable"])
def test_answer_after_a_refused_snapshot_is_unchanged(ours: OnnxBackend) -> None:
    """NaN in a masked slot spoils portable graphs, so a snapshot is checked before it is written."""
    expected = ours.macro(PROMPT, range(5), [4]).logits.copy()
    saved = ours.snapshot()
    infinite = saved["values"].copy()
    infinite[-1, -1, -1, -1] = np.inf
    damaged = (
        {},
        {**saved, "values": saved["values"][:, :, :3]},
        {**saved, "keys": saved["keys"].astype(np.float64)},
        {kind: array[:1] for kind, array in saved.items()},
        {**saved, "values": infinite},
    )
    for snapshot, slots in (*((snapshot, 5) for snapshot in damaged), (saved, 4), (saved, 6)):
        ours.truncate(0)
        with pytest.raises(SessionError):
            ours.restore(snapshot, slots)
        assert ours.slots == 0
        assert (ours.macro(PROMPT, range(5), [4]).logits == expected).all()


@pytest.mark.parametrize(("part", "bind"), [("base", "bind_ortvalue_output"), ("embedder", "bind_output")])
def test_interrupted_bind_is_repeated(
    part: str, bind: str, ours: OnnxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    expected = ours.macro(PROMPT, range(5), [4]).logits.copy()
    ours.truncate(0)
    ours.macro([(1,)], [0], [0])  # bound to other shapes in between
    ours.truncate(0)
    with monkeypatch.context() as patched:
        patched.setattr(getattr(ours, part).binding, bind, interrupt)
        with pytest.raises(KeyboardInterrupt):
            ours.macro(PROMPT, range(5), [4])
    assert ours.slots == 0
    assert (ours.macro(PROMPT, range(5), [4]).logits == expected).all()


def test_memory_stays_constant_over_two_thousand_steps(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**CHANGES)
    # a process of its own, since the memory of this one also serves the tests before
    printed = subprocess.run(
        [sys.executable, "-c", TWO_THOUSAND_STEPS, bundle], capture_output=True, text=True, check=True
    ).stdout
    rss, traced = json.loads(printed)
    # 28 bytes: the smallest object is larger
    assert traced < 1500 * 28
    # only the pages of the cache may be new
    assert rss < 1500 * load_manifest(bundle).kv.bytes_per_slot + 2 * 2**20


def test_first_call_with_gaps_needs_one_more_slot(ours: OnnxBackend) -> None:
    last = ours.info.cache_slots
    with pytest.raises(ContextFullError):
        ours.macro([(1,)] * last, [*range(last - 1), last], [0])
    assert ours.slots == 0


def test_bad_option_is_refused(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**CHANGES)
    wrong = ({"cache_slots": 0}, {"threads": 0}, {"threads": 1 << 31})
    for options in (*wrong, {"kv_cache_dtype": "int8"}, {"kv_cache_dtype": "q8_0"}):
        with pytest.raises(InputError, match=next(iter(options))):
            open_bundle(bundle, **options)  # type: ignore[arg-type]
    backend, _, _ = open_bundle(bundle, kv_cache_dtype="fp32", cache_slots=6)
    assert backend.info.cache_slots == 6


def test_onnx_runtime_error_becomes_a_typed_error(ours: OnnxBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeFailureError, match=r"run the embedder: .*hamburger-edge verify$") as caught:
        ours.macro([(10**6,)], [0], [0])  # the engine would have refused that token
    assert "\n" not in str(caught.value)
    readout = ours.macro([(5,)], [0], [0])  # the model still computes

    class Full:
        def run_with_iobinding(self, binding: object) -> None:
            raise RuntimeError("Failed to allocate memory for requested buffer of size 123\nmore")

    ours.micro_begin(readout.features[0])
    monkeypatch.setattr(ours.micro_decoder, "session", Full())
    with pytest.raises(RuntimeFailureError, match="could not run the micro decoder: not enough memory"):
        ours.micro(5)
    with pytest.raises(RuntimeFailureError, match=r"cache of 1073741824 slots.*smaller cache"):
        KVBuffer(KVLayout(64, 64, 1024, "float32"), 1 << 30)


def test_bundle_of_links_gives_the_same_answer(bundles: Callable[..., Path], tmp_path: Path) -> None:
    """Package managers and space-saving copies make such links."""
    bundle = bundles(**INT8)
    hard = Path(shutil.copytree(bundle, tmp_path / "hard", copy_function=os.link))
    symbolic = Path(shutil.copytree(bundle, tmp_path / "symbolic"))
    (symbolic / "weights.bin").rename(symbolic / "data")
    (symbolic / "weights.bin").symlink_to("data")
    answers = []
    for folder in (bundle, hard, symbolic):
        with open_model(folder, threads=1) as model:
            answers.append(model.generate("Hi", max_tokens=9).tokens)
    assert answers[1:] == [answers[0]] * 2


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_no_step_transposes_weights(
    precision: str, exported_tiny: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head at int8 is stored as rows, and transposed once, while loading."""
    onnx = pytest.importorskip("onnx")
    folder = exported_tiny(precision)
    make = sessions.ort.InferenceSession

    def saving(file: Path, options: Any, **settings: Any) -> Any:
        options.optimized_model_filepath = str(tmp_path / file.name)
        return make(file, options, **settings)

    monkeypatch.setattr(sessions.ort, "InferenceSession", saving)
    with open_model(folder, threads=1):
        pass
    stored = transposed(onnx.load(folder / "micro_decoder.onnx", load_external_data=False))
    assert stored if precision == "int8" else not stored
    for name in ("base.onnx", "micro_decoder.onnx"):
        assert not transposed(onnx.load(tmp_path / name, load_external_data=False))


def transposed(model: Any) -> list[str]:
    """Names of the weights that a graph transposes."""
    weights = {weight.name for weight in model.graph.initializer}
    inputs = (node.input[0] for node in model.graph.node if node.op_type == "Transpose")
    return [name for name in inputs if name in weights]
