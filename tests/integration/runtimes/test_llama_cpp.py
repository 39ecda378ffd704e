"""llama.cpp equals PyTorch, and answers stay the same after Ctrl-C inside a call."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.backend_calls import close, feed
from helpers.toys.gguf_bundles import gguf_bundle

from hamburger_edge import Result, load
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.errors import InputError, RuntimeUnavailableError, SessionError
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.loop.ledger import Group
from hamburger_edge.model import Model
from hamburger_edge.runtimes.llamacpp import library as llama_library
from hamburger_edge.runtimes.llamacpp.context import _Interrupts
from hamburger_edge.runtimes.llamacpp.llamacpp_backend import LlamaCppBackend, open_bundle
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

pytest.importorskip("llama_cpp")

PROMPT = [5, 17, 40, 3, 99, 250, 7, 7, 61]
SLOTS: list[Group] = [(token,) for token in PROMPT]
ANSWER: list[Group] = [(8,), (9, 30), (4, 4, 100), (1, 3, 5, 7), (200,), (6, 12)]
ALIKE: dict[str, Any] = {"threads": 1, "kv_cache_dtype": "f32", "cache_slots": 512}
Opened = Callable[..., LlamaCppBackend]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Open bundles, and close them after the test."""
    with contextlib.ExitStack() as stack:

        def opened(folder: Path, **options: Any) -> LlamaCppBackend:
            backend, _, _ = open_bundle(folder, **{**ALIKE, **options})
            return stack.enter_context(contextlib.closing(backend))

        yield opened


@pytest.fixture
def by_token(opened: Opened) -> LlamaCppBackend:
    return opened(gguf_bundle(position_rule="token")[0])


def test_certainty_equals_onnx_runtime(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(gguf_bundle("fp32")[0], tmp_path / "bundle"))
    replace(load_manifest(folder), certainty=Certainty(offset=5.0, slope=1.5)).save(folder)
    answers: dict[str, list[Result]] = {}
    for backend in ("onnx", "llamacpp"):
        cache = {"kv_cache_dtype": "f32"} if backend == "llamacpp" else {}
        with load(folder, backend, threads=1, **cache) as model:
            answers[backend] = [
                model.generate(text, mode=mode, max_tokens=40, stop=["e", "a", " "])
                for text in ("hello", "Play some jazz", "42", "Norway?")
                for mode in ("plain", "verify", "hybrid")
            ]
    pairs = zip(answers["onnx"], answers["llamacpp"], strict=True)
    equal = [(one, other) for one, other in pairs if one.tokens == other.tokens]
    assert len(equal) > 8
    assert len({one.certainty for one, _ in equal}) > 3
    for one, other in equal:
        assert one.certainty == pytest.approx(other.certainty, abs=1e-3)


# -- rows, calls, caches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["slot", "token"])
def test_long_input_takes_several_calls(rule: str, opened: Opened) -> None:
    """600 rows exceed one call. Rows are read out in order, then out of order with one row twice."""
    folder, checkpoint = gguf_bundle(position_rule=rule, context_length=2048)
    groups: list[Group] = [(i % 300,) if i % 5 else (i % 300, 7) for i in range(600)]
    llamacpp, torch = opened(folder, cache_slots=1024), TorchBackend(checkpoint.model)
    for rows in ([*range(600)], [599, 20, 300, 300, 255, 256]):
        readout, expected = feed(llamacpp, groups, rows), feed(torch, groups, rows)
        close(readout.logits, expected.logits, 1e-3)
        close(readout.features, expected.features, 1e-3)
        assert llamacpp.slots == 600
        llamacpp.truncate(0)
        torch.truncate(0)


def test_damaged_snapshot_is_refused_and_the_model_still_answers(by_token: LlamaCppBackend) -> None:
    expected = feed(by_token, SLOTS, [8]).logits.copy()
    good = by_token.snapshot()
    state, positions = good["state"], good["positions"]
    wrong: list[dict[str, Any]] = [
        {},
        {**good, "state": state[:-9]},
        {**good, "state": state.astype(np.int8)},
        {**good, "state": np.zeros(0, np.uint8)},
        {**good, "positions": positions[:-1]},
        {**good, "positions": np.zeros(100_000, np.int32)},
    ]
    for number, offset in ((np.nan, state.size - 4), (np.inf, state.size // 2 // 4 * 4), (9.5, 0), (9.5, 32)):
        changed = state.copy()
        changed[offset : offset + 4] = np.array([number], "<f4").view(np.uint8)
        wrong.append({**good, "state": changed})
    for snapshot in wrong:
        with pytest.raises(SessionError):
            by_token.restore(snapshot, len(PROMPT))
        assert by_token.slots in (0, len(PROMPT))  # empty or unchanged
    with pytest.raises(SessionError, match="does not fit"):
        by_token.restore(good, len(PROMPT) - 1)
    by_token.truncate(0)
    assert np.array_equal(feed(by_token, SLOTS, [8]).logits, expected)


def test_resumed_conversation_continues_to_same_text(tmp_path: Path) -> None:
    folder, _ = gguf_bundle(position_rule="token")
    with load(folder, threads=1, cache_slots=256) as model:
        assert model.info.backend == "llamacpp"
        chat = model.chat(max_tokens=12, confidence=0.4)
        list(chat.send("the cat"))
        chat.save(tmp_path / "s")
        answer = [chunk.tokens for chunk in chat.send("on the mat")]
        resumed = model.resume(tmp_path / "s")
        assert [chunk.tokens for chunk in resumed.send("on the mat")] == answer
        assert resumed.stats.reused_tokens > 0
    other = load(folder, threads=1, cache_slots=256, kv_cache_dtype="f32")
    with other, pytest.raises(SessionError, match="fingerprint"):
        other.resume(tmp_path / "s")


@pytest.mark.parametrize(
    ("kv_cache_dtype", "bits", "correlation"), [("f16", 16, 0.99), ("q8_0", 8.5, 0.99), ("q4_0", 4.5, 0.9)]
)
def test_quantized_cache_correlates_with_pytorch_and_has_its_size(
    kv_cache_dtype: str, bits: float, correlation: float, opened: Opened
) -> None:
    folder, checkpoint = gguf_bundle(position_rule="token", head_dim=32, qkv_bias=True)
    backend = opened(folder, kv_cache_dtype=kv_cache_dtype)
    base = checkpoint.model.config.base
    weights = 2 * base.num_layers * base.num_kv_heads * base.head_dim
    assert backend.info.kv_bytes_per_slot == weights * bits / 8
    logits, expected = (
        feed(runtime, [*SLOTS, *ANSWER], [14]).logits for runtime in (backend, TorchBackend(checkpoint.model))
    )
    assert np.corrcoef(logits[0], expected[0])[0, 1] > correlation
    sizes = [backend.snapshot()["state"].size for _ in range(2)]
    assert sizes[0] == sizes[1] < 15 * (backend.info.kv_bytes_per_slot + 20) + 1000


# -- taps without the library's help -----------------------------------------------------------------------


def test_taps_without_layer_inputs_equal_those_with_them(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = gguf_bundle(position_rule="slot")
    with_inputs = opened(folder)
    monkeypatch.setattr(llama_library.Library, "has_layer_inputs", property(lambda self: False))
    watched = opened(folder)
    assert with_inputs.base.layer_inputs
    assert not watched.base.layer_inputs

    def features(backend: LlamaCppBackend, groups: list[Group]) -> Any:
        slots = range(backend.slots, backend.slots + len(groups))
        return backend.macro(groups, slots, range(len(groups))).features

    for groups in (SLOTS, ANSWER):
        expected = features(with_inputs, groups)
        assert np.array_equal(features(watched, groups), expected)
    capture = watched.base.context.capture
    assert capture is not None
    capture.nodes = {len(ANSWER): {3: 0, 4: 1}}  # as if an earlier call had another order of nodes
    watched.truncate(len(SLOTS))
    assert np.array_equal(features(watched, ANSWER), expected)
    assert watched.slots == len(SLOTS) + len(ANSWER)


def test_missing_graph_tensor_is_an_error(by_token: LlamaCppBackend) -> None:
    capture = by_token.base.context.capture
    assert capture is not None
    capture.names[0] = b"l_out-99"
    with pytest.raises(RuntimeUnavailableError, match="no tensor l_out-99"):
        feed(by_token, SLOTS, [8])


# -- options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kv_cache_dtype", "q5_1", "must be one of"),
        ("kv_cache_dtype", "q8_0", "multiple of 32, here 16: use f16"),
        ("threads", 1 << 31, "at most 1024"),
        ("cache_slots", 0, "1 or more"),
    ],
)
def test_bad_option_is_refused(option: str, value: object, message: str, opened: Opened) -> None:
    folder, _ = gguf_bundle(position_rule="slot")
    with pytest.raises(InputError, match=f"{option}.*{message}"):
        opened(folder, **{option: value})


def test_llama_cpp_logs_only_with_log(opened: Opened, capfd: pytest.CaptureFixture[str]) -> None:
    folder, _ = gguf_bundle(position_rule="slot")
    for log in (False, True):
        opened(folder, log=log).close()
        printed = capfd.readouterr()
        assert printed.out == ""
        assert ("llama_model_loader" in printed.err) == log
    llama_library.library()


# -- Ctrl-C ------------------------------------------------------------------------------------------------


def toy() -> Model:
    return load(gguf_bundle(position_rule="token")[0], "llamacpp", **ALIKE)


def recording(function: Callable[..., Any], interrupted: int = 0) -> tuple[Callable[..., Any], list[Any]]:
    """Return the function with a list of its results; call number `interrupted` ends in Ctrl-C."""
    returned: list[Any] = []

    def recorded(*words: Any) -> Any:
        returned.append(function(*words))
        if len(returned) == interrupted:
            raise KeyboardInterrupt
        return returned[-1]

    return recorded, returned


@pytest.mark.parametrize(
    ("function", "interrupted_prompt", "prompt"),
    [("decode", PROMPT, PROMPT), ("decode", [*PROMPT, 9], PROMPT), ("set_embeddings", PROMPT, [5])],
)
def test_answer_after_an_interrupted_call_is_unchanged(
    function: str, interrupted_prompt: list[int], prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt comes once llama.cpp has computed rows that the backend has not counted."""
    with toy() as model:
        expected = model.generate(prompt, max_tokens=12, ignore_eos=True).tokens
        library = model.backend.base.context.library  # type: ignore[attr-defined]
        interrupted, calls = recording(getattr(library, function), interrupted=1)
        monkeypatch.setattr(library, function, interrupted)
        reuse = len(interrupted_prompt) > len(PROMPT)
        with pytest.raises(KeyboardInterrupt):
            model.generate(interrupted_prompt, max_tokens=12, reuse_prefix=reuse)
        assert len(calls) == 1
        answer = model.generate(prompt, max_tokens=12, ignore_eos=True, reuse_prefix=function == "decode")
        assert answer.tokens == expected


def test_ctrl_c_in_a_callback_is_raised_after_llama_cpp_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    with toy() as model:
        expected = model.generate(PROMPT, max_tokens=12, ignore_eos=True).tokens
        capture = model.backend.base.context.capture  # type: ignore[attr-defined]
        library, hook = capture.library, sys.unraisablehook
        name, names = recording(library.tensor_name, interrupted=3)
        decode, decodes = recording(library.decode)
        capture.nodes.clear()  # so that it reads every node
        monkeypatch.setattr(library, "tensor_name", name)
        monkeypatch.setattr(library, "decode", decode)
        with pytest.raises(KeyboardInterrupt):
            model.generate(PROMPT, max_tokens=12, reuse_prefix=False)
        assert decodes == [0, 0]  # all rows but the last, then the last: llama.cpp completed both calls
        assert len(names) > 3
        assert sys.unraisablehook is hook
        assert model.generate(PROMPT, max_tokens=12, ignore_eos=True).tokens == expected


def test_other_threads_keep_the_unraisable_hook() -> None:
    """Two threads would restore each other's hook."""

    def inside() -> Any:
        with _Interrupts():
            return sys.unraisablehook

    with ThreadPoolExecutor(1) as other:
        assert other.submit(inside).result() is sys.unraisablehook
