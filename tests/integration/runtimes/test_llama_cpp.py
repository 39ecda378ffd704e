"""llama.cpp says what PyTorch says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_calls import close, feed
from gguf_bundles import gguf_bundle

from hamburger_edge import load
from hamburger_edge.errors import (
    ClosedError,
    ContextFullError,
    HamburgerError,
    InputError,
    RuntimeUnavailableError,
    SessionError,
)
from hamburger_edge.loop.ledger import Group, Ledger
from hamburger_edge.runtimes.llamacpp import library as llama_library
from hamburger_edge.runtimes.llamacpp.llamacpp_backend import LlamaCppBackend, open_bundle
from hamburger_edge.runtimes.torch.torch_backend import TorchBackend

pytest.importorskip("llama_cpp")

PROMPT = [(token,) for token in (5, 17, 40, 3, 99, 250, 7, 7, 61)]
ANSWER: list[Group] = [(8,), (9, 30), (4, 4, 100), (1, 3, 5, 7), (200,), (6, 12)]


Opened = Callable[..., LlamaCppBackend]
ALIKE = {"threads": 1, "kv_cache_dtype": "f32", "cache_slots": 512}


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens bundles; they are closed after the test."""
    with contextlib.ExitStack() as stack:

        def opened(folder: Path, **options: Any) -> LlamaCppBackend:
            backend, _, _ = open_bundle(folder, **{**ALIKE, **options})
            return stack.enter_context(contextlib.closing(backend))

        yield opened


@pytest.fixture
def by_slot(opened: Opened) -> LlamaCppBackend:
    return opened(gguf_bundle(position_rule="slot")[0])


@pytest.fixture
def by_token(opened: Opened) -> LlamaCppBackend:
    return opened(gguf_bundle(position_rule="token")[0])


def test_a_lower_precision_stays_close(opened: Opened) -> None:
    for precision, least in (("f16", 0.95), ("q8_0", 0.8), ("q4_0", 0.4)):
        folder, checkpoint = gguf_bundle(precision, position_rule="slot")
        ours, theirs = opened(folder, kv_cache_dtype="f16"), TorchBackend(checkpoint.model)
        groups = [(int(token),) for token in np.random.default_rng(0).integers(0, 300, 60)]
        rows = list(range(60))
        mine, wanted = (feed(backend, groups, rows).logits.argmax(1) for backend in (ours, theirs))
        assert (mine == wanted).mean() >= least, precision
        assert ours.info.precision == precision


# -- rows, calls, caches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["slot", "token"])
def test_long_inputs_are_fed_in_several_calls(rule: str, opened: Opened) -> None:
    """More rows than one call takes: all of them, and some in any order, some of them twice."""
    folder, checkpoint = gguf_bundle(position_rule=rule, context_length=2048)
    groups: list[Group] = [(i % 300,) if i % 5 else (i % 300, 7) for i in range(600)]
    ours, theirs = opened(folder, cache_slots=1024), TorchBackend(checkpoint.model)
    for rows in ([*range(600)], [599, 20, 300, 300, 255, 256]):
        mine, wanted = feed(ours, groups, rows), feed(theirs, groups, rows)
        close(mine.logits, wanted.logits, 1e-3)
        close(mine.features, wanted.features, 1e-3)
        assert ours.slots == 600
        ours.truncate(0)
        theirs.truncate(0)


def test_a_damaged_snapshot_is_refused_and_the_model_goes_on(by_token: LlamaCppBackend) -> None:
    backend = by_token
    wanted = feed(backend, PROMPT, [8]).logits.copy()
    good = backend.snapshot()
    wrong: list[dict[str, Any]] = [
        {},
        {**good, "state": good["state"][:-9]},
        {**good, "state": good["state"].astype(np.int8)},
        {**good, "state": np.zeros(0, np.uint8)},
        {**good, "positions": good["positions"][:-1]},
        {**good, "positions": np.zeros(100_000, np.int32)},
    ]
    for place in range(0, 200, 7):
        state = good["state"].copy()
        state[place] ^= 0x55
        wrong.append({**good, "state": state})
    refused = 0
    for snapshot in wrong:
        try:
            backend.restore(snapshot, len(PROMPT))
        except SessionError:
            refused += 1
            assert backend.slots in (0, len(PROMPT))  # empty, or never touched
    assert refused >= 6 + 10  # the rest changed a number to another possible one; a session has checksums
    for number, place in ((np.nan, good["state"].size - 4), (np.inf, good["state"].size // 2 // 4 * 4)):
        state = good["state"].copy()
        state[place : place + 4] = np.array([number], "<f4").view(np.uint8)
        with pytest.raises(SessionError, match="damaged"):
            backend.restore({**good, "state": state}, len(PROMPT))
    with pytest.raises(SessionError, match="does not fit"):
        backend.restore(good, len(PROMPT) - 1)
    backend.truncate(0)
    assert np.array_equal(feed(backend, PROMPT, [8]).logits, wanted)


@pytest.mark.parametrize("rule", ["slot", "token"])
def test_conversations_are_saved_and_resumed(rule: str, tmp_path: Path) -> None:
    folder, _ = gguf_bundle(position_rule=rule)
    with load(folder, threads=1, cache_slots=256) as model:
        assert model.info.backend == "llamacpp"
        chat = model.chat(max_tokens=12, confidence=0.4)
        first = "".join(chunk.text for chunk in chat.send("the cat"))
        chat.save(tmp_path / "s")
        said = "".join(chunk.text for chunk in chat.send("on the mat"))
        again = model.resume(tmp_path / "s")
        assert "".join(chunk.text for chunk in again.send("on the mat")) == said
        assert first is not None
        assert again.stats.reused_tokens > 0
    other = load(folder, threads=1, cache_slots=256, kv_cache_dtype="f32")
    with other, pytest.raises(SessionError, match="fingerprint"):
        other.resume(tmp_path / "s")


@pytest.mark.parametrize("kv_cache_dtype", ["f32", "f16", "q8_0", "q4_0"])
def test_cache_types(kv_cache_dtype: str, opened: Opened) -> None:
    folder, checkpoint = gguf_bundle(position_rule="token", head_dim=32, qkv_bias=True)
    backend = opened(folder, kv_cache_dtype=kv_cache_dtype)
    base = checkpoint.model.config.base
    weights = 2 * base.num_layers * base.num_kv_heads * base.head_dim
    bits = {"f32": 32, "f16": 16, "q8_0": 8.5, "q4_0": 4.5}[kv_cache_dtype]
    assert backend.info.kv_bytes_per_slot == weights * bits / 8
    ledger, reference = Ledger.of(backend.info), Ledger.of(backend.info)
    mine = feed(backend, [*PROMPT, *ANSWER], [14], ledger).logits
    wanted = feed(TorchBackend(checkpoint.model), [*PROMPT, *ANSWER], [14], reference).logits
    assert np.corrcoef(mine[0], wanted[0])[0, 1] > (0.9 if kv_cache_dtype == "q4_0" else 0.99)
    sizes = [backend.snapshot()["state"].size for _ in range(2)]
    assert sizes[0] == sizes[1] < 15 * (backend.info.kv_bytes_per_slot + 20) + 1000


# -- taps without the library's help -----------------------------------------------------------------------


def test_without_layer_inputs_the_graph_is_watched(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = gguf_bundle(position_rule="slot")
    handed_out = opened(folder)
    monkeypatch.setattr(llama_library.Library, "has_layer_inputs", property(lambda self: False))
    watched = opened(folder)
    assert handed_out.base.layer_inputs
    assert not watched.base.layer_inputs
    for groups in (PROMPT, ANSWER):
        left, right = (
            feed(backend, groups, list(range(len(groups))), Ledger.of(backend.info))
            if not backend.slots
            else backend.macro(groups, range(backend.slots, backend.slots + len(groups)), range(len(groups)))
            for backend in (handed_out, watched)
        )
        assert np.array_equal(left.features, right.features)
    capture = watched.base.context.capture
    assert capture is not None
    capture.nodes = {len(ANSWER): {3: 0, 4: 1}}  # as if the nodes had come in another order before
    watched.truncate(len(PROMPT))
    again = watched.macro(ANSWER, range(len(PROMPT), len(PROMPT) + len(ANSWER)), range(len(ANSWER)))
    assert np.array_equal(again.features, right.features)
    assert watched.slots == len(PROMPT) + len(ANSWER)


def test_a_graph_without_the_tensor_is_an_error(by_token: LlamaCppBackend) -> None:
    capture = by_token.base.context.capture
    assert capture is not None
    capture.names[0] = b"l_out-99"
    with pytest.raises(RuntimeUnavailableError, match="no tensor l_out-99"):
        feed(by_token, PROMPT, [8])


# -- limits and options ------------------------------------------------------------------------------------


def test_a_full_cache_and_closing(opened: Opened) -> None:
    folder, _ = gguf_bundle(position_rule="slot")
    backend = opened(folder, cache_slots=8)
    assert backend.info.cache_slots == 8
    feed(backend, PROMPT[:8], [7])
    with pytest.raises(ContextFullError, match="9 slots do not fit a cache of 8"):
        backend.macro([(1,)], [8], [0])
    backend.truncate(4)
    with pytest.raises(HamburgerError, match="could not compute"):  # a gap, which rule "slot" never makes
        backend.macro([(1,)], [6], [0])
    backend.close()
    backend.close()
    for call in (backend.snapshot, lambda: backend.micro(1), lambda: backend.truncate(0)):
        with pytest.raises(ClosedError):
            call()


def test_a_group_longer_than_the_model_knows(by_slot: LlamaCppBackend) -> None:
    by_slot.micro_begin(feed(by_slot, PROMPT, [8]).features[0])
    for token in range(by_slot.info.max_group_tokens):
        by_slot.micro(token)
    with pytest.raises(ContextFullError):
        by_slot.micro(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_cache_dtype": "q5_1"}, "kv_cache_dtype must be one of"),
        ({"kv_cache_dtype": "q8_0"}, "multiple of 32, here 16: use f16"),
        ({"threads": 1 << 31}, "threads must be a whole number, 1 or more and at most 1024"),
        ({"cache_slots": 0}, "cache_slots must be a whole number, 1 or more"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str, opened: Opened) -> None:
    folder, _ = gguf_bundle(position_rule="slot")
    with pytest.raises(InputError, match=message):
        opened(folder, **options)


def test_llama_cpp_is_silent_unless_asked(opened: Opened, capfd: pytest.CaptureFixture[str]) -> None:
    folder, _ = gguf_bundle(position_rule="slot")
    for log in (False, True):
        opened(folder, log=log).close()
        printed = capfd.readouterr()
        assert printed.out == ""
        assert ("llama_model_loader" in printed.err) == log
    llama_library.library()
