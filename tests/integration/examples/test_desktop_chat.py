"""The example window: its conversation without a display, and the whole of it under a virtual one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import PATIENCE, ROOT, script

import hamburger_edge

pytest.importorskip("tkinter", reason="this Python was built without tkinter")


@pytest.fixture(scope="module")
def desktop() -> Any:
    return script(ROOT / "examples" / "desktop_chat.py")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Each macro step takes one of these, so that an answer stands still where a test wants it.

    Cancelling gives one: the step that is waited for ends.
    """
    allowed = threading.Semaphore(0)

    def load(*words: Any, open: Any = hamburger_edge.load, **options: Any) -> Any:
        model = open(*words, **options)
        macro, cancel = model.backend.macro, model.cancel

        def step(*words: Any) -> Any:
            assert allowed.acquire(timeout=PATIENCE)
            return macro(*words)

        def stop() -> None:
            cancel()
            allowed.release()

        monkeypatch.setattr(model.backend, "macro", step)
        monkeypatch.setattr(model, "cancel", stop)
        return model

    monkeypatch.setattr(hamburger_edge, "load", load)
    return allowed


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed: no virtual display to open a window on")
    reader, writer = os.pipe()
    command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", "900x700x24", "-nolisten", "tcp"]
    server = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.DEVNULL)
    os.close(writer)
    with os.fdopen(reader) as numbers:
        number = numbers.readline().strip()  # written once it accepts windows
    assert number, "Xvfb did not start"
    yield f":{number}"
    server.terminate()
    server.wait(PATIENCE)


@pytest.fixture
def window(desktop: Any, display: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setenv("DISPLAY", display)
    made: list[Any] = []

    def show(bundle: Path, **options: Any) -> Any:
        root = desktop.tk.Tk()
        made.append(desktop.Window(root, desktop.Conversation(str(bundle), threads=1, **options)))
        return made[-1]

    yield show
    for each in made:
        with contextlib.suppress(desktop.tk.TclError):  # closed by the test itself
            each.close()


def until(window: Any, condition: Callable[[], Any]) -> None:
    """Let the window live until this holds, and what happened is shown."""
    end = time.monotonic() + PATIENCE
    while not (condition() and window.conversation.events.empty()):
        window.root.update()
        time.sleep(0.005)
        assert time.monotonic() < end
    window.show_news()


def shown(window: Any) -> str:
    return str(window.log.get("1.0", "end-1c"))


def usable(window: Any) -> set[str]:
    return {name for name, button in window.buttons.items() if button.instate(["!disabled"])}


def say(window: Any, text: str) -> None:
    window.entry.insert(0, text)
    window.buttons["Send"].invoke()


def test_any_error_is_shown(desktop: Any, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others than ours left the window at "loading" for good."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(hamburger_edge, "load", full)
    conversation = desktop.Conversation(str(bundle))
    conversation.worker.join(PATIENCE)
    event = conversation.events.get_nowait()
    assert (event.kind, event.text) == ("error", "MemoryError: no room")
    assert not conversation.busy


def test_answers_show_their_groups(window: Callable[..., Any], bundle: Path) -> None:
    it = window(bundle, mode="merge", confidence=0.4, max_tokens=40)
    until(it, lambda: it.conversation.ready)
    assert "fp32 on cpu" in it.status.get()
    assert usable(it) == {"Send", "Save", "Open"}
    say(it, "  ")
    assert shown(it) == ""
    say(it, "hello")
    until(it, lambda: it.conversation.ready)
    question, answer = shown(it).split("\n", 1)
    assert question == "hello"
    assert it.conversation.chat.messages[-1].text in answer
    assert "longest answer" in answer
    used = [number for number in range(4) if it.log.tag_ranges(f"group{number}")]
    assert used == [0, 1, 2, 3]  # groups of two and more, in all four shades
    for number in used:
        start, end = it.log.tag_ranges(f"group{number}")[:2]
        assert "\n" not in it.log.get(start, end)
    for part in ("tokens/step", "tokens/s", "KV", "saved"):
        assert part in it.status.get()
    it.close()


def test_stop_continue_save_open_close(
    window: Callable[..., Any],
    desktop: Any,
    bundle: Path,
    steps: threading.Semaphore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = tmp_path / "talk.session"
    monkeypatch.setattr(desktop.filedialog, "asksaveasfilename", lambda **_: str(session))
    monkeypatch.setattr(desktop.filedialog, "askopenfilename", lambda **_: str(session))
    it = window(bundle, mode="merge", confidence=0.4, max_tokens=200)
    until(it, lambda: it.conversation.ready)
    say(it, "hello")
    steps.release(8)
    until(it, lambda: len(shown(it)) > 20)
    assert usable(it) == {"Stop"}
    it.buttons["Stop"].invoke()
    until(it, lambda: it.conversation.ready)
    assert "(stopped)" in shown(it)
    assert usable(it) == {"Send", "Continue", "Save", "Open"}
    tokens = sum(map(len, it.conversation.chat.groups))
    it.buttons["Save"].invoke()
    until(it, lambda: it.conversation.ready)
    assert session.exists()
    assert it.status.get() == f"saved to {session}"
    text = shown(it)
    it.buttons["Continue"].invoke()
    steps.release(4)
    until(it, lambda: len(shown(it)) > len(text))
    it.buttons["Stop"].invoke()
    until(it, lambda: it.conversation.ready)
    assert sum(map(len, it.conversation.chat.groups)) > tokens
    it.buttons["Open"].invoke()
    until(it, lambda: it.conversation.ready)
    assert sum(map(len, it.conversation.chat.groups)) == tokens
    assert shown(it).count("hello") == 2
    it.buttons["Continue"].invoke()
    assert it.conversation.busy
    it.close()  # in the middle of an answer
    assert not it.conversation.busy
    with pytest.raises(hamburger_edge.ClosedError, match="closed"):
        it.conversation.model.generate("hello")


def test_a_missing_bundle_is_said_in_the_window(window: Callable[..., Any], tmp_path: Path) -> None:
    it = window(tmp_path / "nowhere")
    until(it, lambda: "nowhere" in shown(it))
    assert "there is no such folder" in shown(it)
    assert usable(it) == set()
    it.close()


def test_the_program_starts_and_ends(
    desktop: Any, display: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", display)
    shown = []

    def loop(root: Any) -> None:  # somebody closes the window at once, while the bundle loads
        root.update()
        shown.append(root.title())
        root.tk.call(*root.tk.splitlist(root.protocol("WM_DELETE_WINDOW")))

    monkeypatch.setattr(desktop.tk.Tk, "mainloop", loop)
    desktop.main([str(bundle), "--confidence", "0.5", "--threads", "1"])
    assert shown == ["hamburger-edge"]


def test_the_conversation_without_a_window(desktop: Any, bundle: Path, steps: threading.Semaphore) -> None:
    talk = desktop.Conversation(str(bundle), threads=1, mode="merge", confidence=0.4, max_tokens=200)
    assert talk.busy
    assert talk.events.get(timeout=PATIENCE).kind == "opened"
    talk.worker.join(PATIENCE)
    talk.ask("hello")
    steps.release(4)
    assert talk.events.get(timeout=PATIENCE).kind == "text"
    talk.stop()
    talk.worker.join(PATIENCE)
    assert talk.ready
    *texts, end = talk.events.queue
    assert {event.kind for event in texts} == {"text"}
    assert (end.kind, end.text) == ("end", "cancelled")
    assert end.stats.tokens > 0
    before = threading.active_count()
    talk.continue_answer()
    talk.close()  # as early as can be
    assert threading.active_count() == before
