"""The example window on a virtual display: answers, buttons, sessions and errors."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.places import PATIENCE, ROOT, script

import hamburger_edge
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.runtimes.onnx.onnx_backend import OnnxBackend

pytest.importorskip("tkinter", reason="this Python was built without tkinter")


@pytest.fixture(scope="module")
def desktop() -> Any:
    return script(ROOT / "examples" / "desktop_chat.py")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Each macro step takes one permit, so a test chooses where an answer waits.

    Cancelling releases one permit, so that the waiting step ends.
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
    windows: list[Any] = []

    def show(bundle: Path, **options: Any) -> Any:
        root = desktop.tk.Tk()
        windows.append(desktop.Window(root, desktop.Conversation(str(bundle), threads=1, **options)))
        return windows[-1]

    yield show
    for open_window in windows:
        with contextlib.suppress(desktop.tk.TclError):  # closed by the test itself
            open_window.close()


def until(window: Any, condition: Callable[[], Any]) -> None:
    """Run the window until the condition holds and its events are shown."""
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


def test_loading_error_is_shown(
    window: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors other than HamburgerError once left the window at "loading"."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError("no room")

    missing = window(tmp_path / "nowhere")
    until(missing, lambda: "there is no such folder" in shown(missing))
    assert usable(missing) == set()
    monkeypatch.setattr(hamburger_edge, "load", full)
    other = window(tmp_path)
    until(other, lambda: "MemoryError: no room" in shown(other))


def test_answer_shows_its_groups_in_four_shades(window: Callable[..., Any], bundle: Path) -> None:
    chat = window(bundle, mode="merge", confidence=0.4, max_tokens=40)
    until_ready(chat)
    assert "fp32 on cpu" in chat.status.get()
    assert usable(chat) == {"Send", "Save", "Open"}
    say(chat, "  ")
    assert shown(chat) == ""
    say(chat, "hello")
    until_ready(chat)
    question, answer = shown(chat).split("\n", 1)
    assert question == "hello"
    assert chat.conversation.chat.messages[-1].text in answer
    assert "longest answer" in answer
    shades = [number for number in range(4) if chat.log.tag_ranges(f"group{number}")]
    assert shades == [0, 1, 2, 3]  # groups of two and more, in all four shades
    for number in shades:
        start, end = chat.log.tag_ranges(f"group{number}")[:2]
        assert "\n" not in chat.log.get(start, end)
    for part in ("tokens/step", "tokens/s", "KV", "saved"):
        assert part in chat.status.get()


def test_stopped_answer_is_saved_continued_and_reopened(
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
    chat = window(bundle, mode="merge", confidence=0.4, max_tokens=200)
    until_ready(chat)
    say(chat, "hello")
    steps.release(8)
    until(chat, lambda: len(shown(chat)) > 20)
    assert usable(chat) == {"Stop"}
    chat.buttons["Stop"].invoke()
    until_ready(chat)
    assert "(stopped)" in shown(chat)
    assert usable(chat) == {"Send", "Continue", "Save", "Open"}
    before = tokens(chat)
    chat.buttons["Save"].invoke()
    until_ready(chat)
    assert session.exists()
    assert chat.status.get() == f"saved to {session}"
    text = shown(chat)
    chat.buttons["Continue"].invoke()
    steps.release(4)
    until(chat, lambda: len(shown(chat)) > len(text))
    chat.buttons["Stop"].invoke()
    until_ready(chat)
    assert tokens(chat) > before
    chat.buttons["Open"].invoke()
    until_ready(chat)
    assert tokens(chat) == before
    assert shown(chat).count("hello") == 2
    chat.buttons["Continue"].invoke()
    assert chat.conversation.busy
    chat.close()  # in the middle of an answer
    assert not chat.conversation.busy
    with pytest.raises(hamburger_edge.ClosedError, match="closed"):
        chat.conversation.model.generate("hello")


@pytest.fixture
def run(desktop: Any, display: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run the program: `use(window)` acts as its user, then the window closes."""
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


def test_window_closes_while_the_bundle_loads(run: Callable[..., None], bundle: Path) -> None:
    titles: list[str] = []
    options = ("--confidence", "0.5", "--threads", "1")
    run(lambda program_window: titles.append(program_window.root.title()), str(bundle), *options)
    assert titles == ["hamburger-edge"]  # closed while the bundle loads


def test_program_without_options_loads_another_model_from_its_list(
    run: Callable[..., None], desktop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program once required a bundle, and had no list."""
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))  # so that tiny is made now
    stages: list[str] = []
    show = desktop.Window.on_progress

    def recorded(window: Any, event: Any) -> None:
        stages.append(event.text)
        show(window, event)

    monkeypatch.setattr(desktop.Window, "on_progress", recorded)

    def use(program_window: Any) -> None:
        until_ready(program_window)
        assert program_window.status.get().startswith("tiny: int8 on cpu")
        say(program_window, "What is the capital of Norway?")
        until_ready(program_window)
        assert "Oslo" in shown(program_window)
        assert program_window.models["values"][0] == "tiny"
        first = program_window.conversation.model
        program_window.models.set("tiny")
        program_window.models.event_generate("<<ComboboxSelected>>")
        until_ready(program_window)
        assert program_window.conversation.model is not first
        assert shown(program_window) == ""
        with pytest.raises(hamburger_edge.ClosedError):
            first.generate("hello")

    run(use)
    assert [stage for stage in stages if re.search(r"\d+%", stage)]


def test_stopped_loading_leaves_the_list_usable(
    window: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    load, loading = hamburger_edge.load, threading.Event()

    def wait(*words: Any, progress: Any, **named: Any) -> Any:
        loading.wait(PATIENCE)
        return load(*words, progress=progress, **named)

    monkeypatch.setattr(hamburger_edge, "load", wait)
    opened = window("tiny")
    until(opened, lambda: usable(opened) == {"Stop"})
    opened.buttons["Stop"].invoke()
    loading.set()
    until(opened, lambda: not opened.conversation.busy)
    assert opened.status.get() == "tiny was not loaded: stopped"
    assert not list((tmp_path / "bundles").glob("tiny-*"))
    opened.load("tiny")
    until_ready(opened)


def test_unsure_answer_is_named(
    window: Callable[..., Any], desktop: Any, bundle: Path, tmp_path: Path
) -> None:
    """The certainty of this bundle's answers is always near 0."""
    folder = Path(shutil.copytree(bundle, tmp_path / "unsure"))
    manifest = load_manifest(folder)
    replace(manifest, certainty=Certainty(offset=-20.0, slope=0.0)).save(folder)
    chat = window(folder, logit_bias={manifest.model.eos_ids[0]: 100.0})  # so that the answer ends
    until_ready(chat)
    say(chat, "hello")
    until_ready(chat)
    assert desktop.UNSURE in shown(chat)


def test_program_uses_recommended_mode_and_confidence(run: Callable[..., None], bundle: Path) -> None:
    """Without --confidence the program once failed with "got None"."""

    def use(program_window: Any) -> None:
        until(program_window, lambda: not program_window.conversation.busy)
        assert shown(program_window) == ""
        assert usable(program_window) == {"Send", "Save", "Open"}
        chat = program_window.conversation.chat
        decoding, recommended = chat.settings.decoding, program_window.conversation.model.info.recommended
        assert (decoding.mode, decoding.confidence) == (recommended.mode, recommended.confidence)
        say(program_window, "hello")
        until_ready(program_window)
        assert chat.messages[-1].text in shown(program_window)
        assert len(chat.messages) == 2

    run(use, str(bundle))
