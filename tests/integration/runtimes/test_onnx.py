"""ONNX Runtime says what PyTorch says, in buffers that never move or grow."""

from __future__ import annotations

import gc
import os
import shutil
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
from backend_calls import close
from toy_bundles import CHANGES, GEMMA, MERGING, MERGING_GEMMA, PORTABLE, toy_checkpoint

from hamburger_edge import load as open_model
from hamburger_edge.bundle.manifest import KVLayout
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import (
    ClosedError,
    ContextFullError,
    InputError,
    RuntimeFailureError,
    SessionError,
)
from hamburger_edge.loop.backend import Readout
from hamburger_edge.loop.dial import Mode
from hamburger_edge.runtimes.onnx.buffers import Buffer
from hamburger_edge.runtimes.onnx.kv_buffer import KVBuffer
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend, open_bundle
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

BY_TOKEN = CHANGES
PROMPT = [(5,), (9,), (11,), (3,), (80,)]
GROUPS = [(7,), (8, 9), (10, 11, 12), (13, 14, 15, 16), (17,), (18, 19, 20, 21), (22, 23)]


def pair(bundle: Path, tmp_path: Path, changes: dict) -> tuple[OnnxBackend, TorchBackend]:
    checkpoint = toy_checkpoint(tmp_path / "checkpoint", **changes)
    return OnnxBackend(bundle, load_manifest(bundle), threads=1), TorchBackend(checkpoint.model)


@pytest.fixture
def ours(bundles: Callable[..., Path]) -> OnnxBackend:
    bundle = bundles(**BY_TOKEN)
    return OnnxBackend(bundle, load_manifest(bundle), threads=1)


@pytest.mark.parametrize(
    ("mode", "confidence"), [("plain", 1), ("verify", 0.3), ("hybrid", 0.6), ("merge", 0.3)]
)
def test_the_likeliest_tokens(mode: Mode, confidence: float, bundles: Callable[..., Path]) -> None:
    with open_model(bundles(**MERGING), threads=1) as model:
        said = model.generate("hello", max_tokens=30, top_probabilities=3, mode=mode, confidence=confidence)
        reference = model.generate("hello", max_tokens=30, top_probabilities=3, mode="plain")
        plain = iter(reference.top_probabilities)
        each_token = zip(said.tokens, said.probabilities, said.top_probabilities, strict=True)
        for token, probability, top in each_token:
            assert top or mode in ("hybrid", "merge")  # of merged tokens the base has no scores
            if top:
                assert top[0].token == token
                assert top[0].logprob == pytest.approx(np.log(probability), abs=1e-5)
                assert len(top) == 3
            if mode == "verify":
                wanted = [each.logprob for each in next(plain)]
                assert [each.logprob for each in top] == pytest.approx(wanted, abs=1e-3)
        assert {bool(top) for top in said.top_probabilities} == {True, mode in ("plain", "verify")}


@pytest.mark.parametrize("changes", [BY_TOKEN, GEMMA], ids=["token", "gemma-3"])
def test_positions_of_the_first_call_may_have_gaps(
    changes: dict, bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """There the fused operator would count for itself, unless it is told of a slot more than there is."""
    ours, reference = pair(bundles(**changes), tmp_path, changes)
    for groups, positions in (
        ([(1, 2)], [1]),
        ([(1,), (2, 3)], [0, 2]),
        ([(1,), (2,), (3, 4, 5), (6,)], [0, 1, 4, 5]),
        ([(1,), (2,), (3, 4, 5), (6,), (7, 8), (9,)], [0, 1, 4, 5, 7, 8]),
    ):
        rows = range(len(groups))
        got, want = (part.macro(groups, positions, rows) for part in (ours, reference))
        close(got.logits, want.logits)
        close(got.features, want.features)
        following = [part.macro([(7, 8)], [positions[-1] + 2], [0]).logits for part in (ours, reference)]
        close(*following)
        for part in (ours, reference):
            part.truncate(0)
    full = [(1,)] * ours.info.cache_slots
    with pytest.raises(ContextFullError):  # no slot is left to tell of
        ours.macro(full, [*range(len(full) - 1), len(full)], [0])
    assert ours.slots == 0
    ours.macro(full, range(len(full)), [0])


def test_keys_and_values_are_written_in_place(bundles: Callable[..., Path], tmp_path: Path) -> None:
    ours, reference = pair(bundles(**BY_TOKEN), tmp_path, BY_TOKEN)
    address = ours.base.cache.kv.keys.ctypes.data
    for backend in (ours, reference):
        backend.macro(PROMPT, range(5), [4])
    kv = ours.base.cache.kv
    assert kv.keys.ctypes.data == address
    assert not kv.keys[:, :, :, 5:].any()
    close(kv.keys[:, 0, :, :5], reference.cache.keys[:, :, :5])
    close(kv.values[:, 0, :, :5], reference.cache.values[:, :, :5])
    written = kv.keys[:, :, :, :5].nbytes + kv.values[:, :, :, :5].nbytes
    assert kv.used * kv.layout.bytes_per_slot == 5 * ours.info.kv_bytes_per_slot == written


@pytest.mark.parametrize("changes", [BY_TOKEN, PORTABLE], ids=["fused", "portable"])
def test_a_refused_snapshot_leaves_no_trace(changes: dict, bundles: Callable[..., Path]) -> None:
    """It was written before slots were compared; and masked entries that hold NaN make NaN of portable
    graphs' answers until the model is loaded again."""
    bundle = bundles(**changes)
    ours = OnnxBackend(bundle, load_manifest(bundle), threads=1)
    expected = ours.macro(PROMPT, range(5), [4]).logits.copy()
    saved = ours.snapshot()
    ours.truncate(0)
    poisoned = {kind: np.full_like(array, np.nan) for kind, array in saved.items()}
    one = saved["values"].copy()
    one[-1, -1, -1, -1] = np.inf
    damaged = (
        {},
        {**saved, "values": saved["values"][:, :, :3]},
        {**saved, "keys": saved["keys"].astype(np.float64)},
        {kind: array[:1] for kind, array in saved.items()},
        poisoned,
        {**saved, "values": one},
    )
    for snapshot, slots in (*((each, 5) for each in damaged), (saved, 4), (saved, 6)):
        with pytest.raises(SessionError):
            ours.restore(snapshot, slots)
        assert ours.slots == 0
        assert (ours.macro(PROMPT, range(5), [4]).logits == expected).all()
        ours.truncate(0)
    ours.close()


@pytest.mark.parametrize(("part", "bind"), [("base", "bind_ortvalue_output"), ("embedder", "bind_output")])
def test_an_interrupted_bind_is_done_again(
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


def test_nothing_grows_over_two_thousand_steps(ours: OnnxBackend) -> None:
    process = psutil.Process()
    used: list[tuple[int, int]] = []
    written = ours.info.kv_bytes_per_slot
    tracemalloc.start()
    try:
        for step in range(2000):
            readout = ours.macro([(step % 90,)], [step], [0])
            ours.micro_begin(readout.features[0])
            ours.micro(3)
            ours.micro(4)
            if step in (500, 1999):
                gc.collect()
                used.append((process.memory_info().rss, tracemalloc.get_traced_memory()[0]))
    finally:
        tracemalloc.stop()
    (rss_before, traced_before), (rss_after, traced_after) = used
    # the smallest object that a step could leave has more; other threads of the process take a little
    assert traced_after - traced_before < 1500 * 28
    # the cache's own pages are the only thing that may come into being
    assert rss_after - rss_before < 1500 * written + 2 * 2**20


def test_limits_and_closing(bundles: Callable[..., Path]) -> None:
    bundle = bundles(**BY_TOKEN)
    small = OnnxBackend(bundle, load_manifest(bundle), threads=1, cache_slots=6)
    small.macro(PROMPT, range(5), [4])
    with pytest.raises(ContextFullError, match="larger"):
        small.macro([(1,), (2,)], [5, 6], [1])
    assert small.slots == 5
    small.close()
    small.close()
    with pytest.raises(ClosedError):
        small.macro([(1,)], [5], [0])
    with pytest.raises(InputError, match="cache_slots"):
        open_bundle(bundle, cache_slots=0)
    for threads in (0, 1 << 31):
        with pytest.raises(InputError, match="threads"):
            open_bundle(bundle, threads=threads)
    with pytest.raises(InputError, match=r"kv_cache_dtype='int8'.*is float32.*llamacpp"):
        open_bundle(bundle, kv_cache_dtype="int8")


def test_what_onnx_runtime_raises_becomes_an_error_of_ours(
    ours: OnnxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeFailureError, match=r"run the embedder: .*hamburger-edge verify$") as caught:
        ours.macro([(10**6,)], [0], [0])  # the engine would have refused that token
    assert "\n" not in str(caught.value)
    readout = ours.macro([(5,)], [0], [0])  # and the model goes on

    class Full:
        def run_with_iobinding(self, binding: object) -> None:
            raise RuntimeError("Failed to allocate memory for requested buffer of size 123\nmore")

    ours.micro_begin(readout.features[0])
    monkeypatch.setattr(ours.micro_decoder, "session", Full())
    with pytest.raises(RuntimeFailureError, match="could not run the micro decoder: not enough memory"):
        ours.micro(5)
    with pytest.raises(RuntimeFailureError, match=r"cache of 1073741824 slots.*smaller cache"):
        KVBuffer(KVLayout(64, 64, 1024, "float32"), 1 << 30)


@pytest.mark.parametrize("how", ["hard", "symbolic"])
@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_files_may_be_links(how: str, precision: str, bundles: Callable[..., Path], tmp_path: Path) -> None:
    """As package managers and copies that save space leave them."""
    bundle = bundles(precision=precision, **BY_TOKEN)
    if how == "hard":
        shutil.copytree(bundle, tmp_path / "copy", copy_function=os.link)
    else:
        shutil.copytree(bundle, tmp_path / "copy")
        (tmp_path / "copy" / "weights.bin").rename(tmp_path / "copy" / "data")
        (tmp_path / "copy" / "weights.bin").symlink_to("data")
    with open_model(tmp_path / "copy") as model, open_model(bundle) as original:
        assert model.generate("Hi", max_tokens=9).tokens == original.generate("Hi", max_tokens=9).tokens


def test_several_models_in_one_process(ours: OnnxBackend, bundles: Callable[..., Path]) -> None:
    second = OnnxBackend(bundles(**MERGING), load_manifest(bundles(**MERGING)), threads=1)
    alone = ours.macro(PROMPT, range(5), [4]).logits.copy()
    for touch in (lambda: second.macro(PROMPT[::-1], range(5), [4]), second.close):
        touch()
        ours.truncate(0)
        assert (ours.macro(PROMPT, range(5), [4]).logits == alone).all()


@pytest.mark.parametrize(
    ("precision", "limit", "changes"),
    [
        ("fp16", 0.02, BY_TOKEN),
        ("int8", 1.0, BY_TOKEN),
        ("int4", 3.0, BY_TOKEN),
        ("int8", 1.0, MERGING_GEMMA),
        ("int4", 3.0, GEMMA),
    ],
    ids=["fp16", "int8", "int4", "int8-gemma-3", "int4-gemma-3"],
)
def test_lower_precisions_run(
    precision: str, limit: float, changes: dict, bundles: Callable[..., Path], tmp_path: Path
) -> None:
    ours, reference = pair(bundles(precision=precision, **changes), tmp_path, changes)
    assert ours.info.precision == precision
    for backend in (ours, reference):
        backend.macro(PROMPT[:1], [0], [])
    got, want = (backend.macro(GROUPS, range(3, 24, 3), [6]) for backend in (ours, reference))
    assert 0 < np.abs(got.logits - want.logits).max() < limit
    ours.micro_begin(got.features[0])
    reference.micro_begin(want.features[0])
    for token in (4, 5):
        assert 0 < np.abs(ours.micro(token).logits - reference.micro(token).logits).max() < limit


def test_the_first_slot_of_a_text_is_computed_once(
    bundles: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """int8 graphs read it in a call of its own; the same slot of a later text is copied, bit for bit."""
    bundle = bundles(precision="int8", **BY_TOKEN)
    ours = OnnxBackend(bundle, load_manifest(bundle), threads=1)
    calls: list[int] = []
    run = ours.base.run

    def counted(embeddings: Buffer, positions: Sequence[int], rows: Sequence[int]) -> Readout:
        calls.append(len(positions))
        return run(embeddings, positions, rows)

    monkeypatch.setattr(ours.base, "run", counted)
    other = [(7,), *PROMPT[1:]]
    found = []
    for prompt in (PROMPT, PROMPT, other, PROMPT):
        ours.truncate(0)
        found.append(ours.macro(prompt, range(5), [4]).logits.copy())
        assert ours.slots == 5
    assert calls == [1, 4, 4, 1, 4, 1, 4]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[3]).all()
    assert (found[0] != found[2]).any()
    ours.close()
