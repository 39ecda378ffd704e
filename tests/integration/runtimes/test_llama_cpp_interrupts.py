"""Ctrl-C in the middle of llama.cpp's work."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from gguf_bundles import gguf_bundle

from hamburger_edge import load
from hamburger_edge.model import Model

pytest.importorskip("llama_cpp")

PROMPT = [5, 17, 40, 3, 99, 250, 7, 7, 61]


def toy() -> Model:
    folder, _ = gguf_bundle(position_rule="token")
    return load(folder, "llamacpp", threads=1, kv_cache_dtype="f32", cache_slots=512)


def noting(function: Callable[..., Any], interrupted: int = 0) -> tuple[Callable[..., Any], list[Any]]:
    """The same function, and what it returned; Ctrl-C is heard at the end of call number `interrupted`."""
    returned: list[Any] = []

    def noted(*words: Any) -> Any:
        returned.append(function(*words))
        if len(returned) == interrupted:
            raise KeyboardInterrupt
        return returned[-1]

    return noted, returned


def test_an_interrupted_call_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is heard once llama.cpp returns, when it already has rows that nobody counted."""
    with toy() as model:
        expected = model.generate(PROMPT, max_tokens=12, ignore_eos=True).tokens
        library = model.backend.base.context.library  # type: ignore[attr-defined]
        decode, calls = noting(library.decode, interrupted=1)
        monkeypatch.setattr(library, "decode", decode)
        for start in (PROMPT, [*PROMPT, 9]):
            calls.clear()
            with pytest.raises(KeyboardInterrupt):
                model.generate(start, max_tokens=12, reuse_prefix=start is not PROMPT)
            assert model.generate(PROMPT, max_tokens=12, ignore_eos=True).tokens == expected


def test_ctrl_c_in_a_callback_is_raised_once_llama_cpp_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    with toy() as model:
        expected = model.generate(PROMPT, max_tokens=12, ignore_eos=True).tokens
        capture = model.backend.base.context.capture  # type: ignore[attr-defined]
        library, hook = capture.library, sys.unraisablehook
        name, names = noting(library.tensor_name, interrupted=3)
        decode, decodes = noting(library.decode)
        capture.nodes.clear()  # so that it looks at every node
        monkeypatch.setattr(library, "tensor_name", name)
        monkeypatch.setattr(library, "decode", decode)
        with pytest.raises(KeyboardInterrupt):
            model.generate(PROMPT, max_tokens=12, reuse_prefix=False)
        assert decodes == [0, 0]  # all but the last row, and that one: llama.cpp went on to its end, once
        assert len(names) > 3
        assert sys.unraisablehook is hook
        assert model.generate(PROMPT, max_tokens=12, ignore_eos=True).tokens == expected


def test_an_interrupted_change_of_what_is_read_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between llama.cpp's own switch and the note of how it stands."""
    with toy() as model:
        expected = model.generate([5], max_tokens=12, ignore_eos=True).tokens
        library = model.backend.base.context.library  # type: ignore[attr-defined]
        switch, calls = noting(library.set_embeddings, interrupted=1)
        monkeypatch.setattr(library, "set_embeddings", switch)
        with pytest.raises(KeyboardInterrupt):
            model.generate(PROMPT, max_tokens=12, reuse_prefix=False)  # nothing is read but its last row
        assert len(calls) == 1
        answer = model.generate([5], max_tokens=12, ignore_eos=True, reuse_prefix=False)
        assert answer.tokens == expected


def test_two_models_in_two_threads_leave_the_hook_alone() -> None:
    hook = sys.unraisablehook

    def answer() -> None:
        with toy() as model:
            model.generate(PROMPT, max_tokens=40, confidence=0.1, ignore_eos=True)

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    answer()
    for thread in threads:
        thread.join()
    assert sys.unraisablehook is hook
