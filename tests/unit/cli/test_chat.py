"""The conversation on the terminal: where Ctrl-C may fall, and what becomes of what was said."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from chat_models import toy_model

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.commands.chat import converse
from hamburger_edge.model import Model


class Input(io.StringIO):
    def __init__(self, lines: str, terminal: bool) -> None:
        super().__init__(lines)
        self.isatty = lambda: terminal  # type: ignore[method-assign]


@pytest.fixture
def model(tokenizer_path: Path) -> Model:
    return toy_model(Tokenizer(tokenizer_path))


def interrupting(steps: int) -> Any:
    """Ctrl-C in the middle of that step."""
    left = steps

    def before_macro(_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)

    return before_macro


@pytest.mark.parametrize("terminal", [True, False])
def test_ctrl_c_in_an_answer(
    terminal: bool, model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal it stops the answer; whoever feeds a pipe wants the program to end."""
    model.backend.eos_rate = 0.0
    model.backend.before_macro = interrupting(3)
    monkeypatch.setattr(sys, "stdin", Input("hello\n/stats\n", terminal))
    if terminal:
        converse(model, system=None, show_steps=False, max_tokens=50)
    else:
        with pytest.raises(KeyboardInterrupt):
            converse(model, system=None, show_steps=False, max_tokens=50)
    out = capsys.readouterr().out
    assert " [stopped]\n" in out
    assert ("groups hold" in out) == terminal


def test_ctrl_c_between_answers_keeps_the_conversation(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    encode, calls = model.tokenizer.encode_parts, 0

    def interrupted(parts: Any) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return encode(parts)

    monkeypatch.setattr(model.tokenizer, "encode_parts", interrupted)
    monkeypatch.setattr(sys, "stdin", Input(f"one\ntwo\nthree\n/save {tmp_path}/session\n", True))
    converse(model, system=None, show_steps=False, max_tokens=5)
    assert [message.text for message in model.resume(tmp_path / "session").messages[::2]] == ["one", "three"]
