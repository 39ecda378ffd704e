"""Conversations with a bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_bundles import MERGING

import hamburger_edge


@pytest.mark.parametrize("changes", [{"draft_vocab_size": 100}, MERGING], ids=["token", "slot"])
def test_a_conversation_is_read_once_more_where_something_else_was(
    changes: dict[str, Any], bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """With merged answers in it, into a cache that holds nothing of it, by graphs that rotate themselves."""
    said = []
    for disturbed in (False, True):
        with hamburger_edge.load(bundles(**changes)) as model:
            chat = model.chat(mode="merge", confidence=0.0, max_tokens=30, ignore_eos=True)
            list(chat.send("hello"))
            if disturbed:
                model.generate([5], max_tokens=3)  # nothing in common, not even the first token
            answer = [chunk.tokens for chunk in chat.send("and more")]
            assert (chat.stats.reused_tokens > 0) != disturbed
            chat.save(tmp_path / "chat")
            said.append((answer, [chunk.tokens for chunk in chat.send("and more yet")]))
            model.generate([5], max_tokens=3)
            resumed = model.resume(tmp_path / "chat")
            assert [chunk.tokens for chunk in resumed.send("and more yet")] == said[-1][1]
    assert any(len(tokens) > 1 for tokens in said[0][0])
    assert said[0] == said[1]
