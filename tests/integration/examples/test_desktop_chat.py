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
from helpers.places import PATIENCE, ROOT, script

import hamburger_edge
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend

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
    macro, cancel = OnnxBackend.macro, hamburger_edge.Model.cancel

    def step(*words: Any) -> Any:
        assert allowed.acquire(timeout=PATIENCE)
        return macro(*words)

    def stop(model: hamburger_edge.Model) -> None:
        cancel(model)
        allowed.release()

    monkeypatch.setattr(OnnxBackend, "macro", step)
    monkeypatch.setattr(hamburger_edge.Model, "cancel", stop)
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


def until_ready(window: Any) -> None:
    until(window, lambda: window.conversation.ready)


def shown(window: Any) -> str:
    return str(window.log.get("1.0", "end-1c"))


def usable(window: Any) -> set[str]:
    return {name for name, button in window.buttons.items() if button.instate(["!disabled"])}


def say(window: Any, text: str) -> None:
    window.entry.insert(0, text)
    window.buttons["Send"].invoke()


def tokens(window: Any) -> int:
    return sum(map(len, window.conversation.chat.groups))


def test_any_error_is_shown(
    window: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others than ours left the window at "loading" for good."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError("no room")

    missing = window(tmp_path / "nowhere")
    until(missing, lambda: "there is no such folder" in shown(missing))
    assert usable(missing) == set()
    monkeypatch.setattr(hamburger_edge, "load", full)
    other = window(tmp_path)
    until(other, lambda: "MemoryError: no room" in shown(other))


def test_answers_show_their_groups(window: Callable[..., Any], bundle: Path) -> None:
    it = window(bundle, mode="merge", confidence=0.4, max_tokens=40)
    until_ready(it)
    assert "fp32 on cpu" in it.status.get()
    assert usable(it) == {"Send", "Save", "Open"}
    say(it, "  ")
    assert shown(it) == ""
    say(it, "hello")
    until_ready(it)
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
    until_ready(it)
    say(it, "hello")
    steps.release(8)
    until(it, lambda: len(shown(it)) > 20)
    assert usable(it) == {"Stop"}
    it.buttons["Stop"].invoke()
    until_ready(it)
    assert "(stopped)" in shown(it)
    assert usable(it) == {"Send", "Continue", "Save", "Open"}
    before = tokens(it)
    it.buttons["Save"].invoke()
    until_ready(it)
    assert session.exists()
    assert it.status.get() == f"saved to {session}"
    text = shown(it)
    it.buttons["Continue"].invoke()
    steps.release(4)
    until(it, lambda: len(shown(it)) > len(text))
    it.buttons["Stop"].invoke()
    until_ready(it)
    assert tokens(it) > before
    it.buttons["Open"].invoke()
    until_ready(it)
    assert tokens(it) == before
    assert shown(it).count("hello") == 2
    it.buttons["Continue"].invoke()
    assert it.conversation.busy
    it.close()  # in the middle of an answer
    assert not it.conversation.busy
    with pytest.raises(hamburger_edge.ClosedError, match="closed"):
        it.conversation.model.generate("hello")


@pytest.fixture
def run(desktop: Any, display: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run the program with a user who does `use(window)` and then closes the window."""
    windows: list[Any] = []

    class Window(desktop.Window):  # type: ignore[misc, name-defined]
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            windows.append(self)

    def run_program(use: Callable[[Any], None], *arguments: str) -> None:
        def loop(root: Any) -> None:
            root.update()
            use(windows[-1])
            root.tk.call(*root.tk.splitlist(root.protocol("WM_DELETE_WINDOW")))

        monkeypatch.setattr(desktop.tk.Tk, "mainloop", loop)
        desktop.main([*arguments])

    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr(desktop, "Window", Window)
    return run_program


def test_the_program_starts_and_ends(run: Callable[..., None], bundle: Path) -> None:
    titles: list[str] = []
    run(lambda it: titles.append(it.root.title()), str(bundle), "--confidence", "0.5", "--threads", "1")
    assert titles == ["hamburger-edge"]  # closed while the bundle loads


def test_the_program_answers_without_options_as_the_model_recommends(
    run: Callable[..., None], bundle: Path
) -> None:
    """Without --confidence it failed with "got None", and no button worked."""

    def use(it: Any) -> None:
        until(it, lambda: not it.conversation.busy)
        assert shown(it) == ""
        assert usable(it) == {"Send", "Save", "Open"}
        chat = it.conversation.chat
        decoding, recommended = chat.settings.decoding, it.conversation.model.info.recommended
        assert (decoding.mode, decoding.confidence) == (recommended.mode, recommended.confidence)
        say(it, "hello")
        until_ready(it)
        assert chat.messages[-1].text in shown(it)
        assert len(chat.messages) == 2

    run(use, str(bundle))
