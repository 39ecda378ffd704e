"""Chat in a window: a list of models, streaming from a worker thread, shaded token groups, saved sessions.

    python examples/desktop_chat.py [BUNDLE] [--confidence 0.8] [--max-tokens N] [--threads N]

A queue connects the two halves. Only the window uses Tk, and only the conversation uses the model:

    Window (main thread) --load, ask, stop, save, open--> Conversation (one worker thread at a time)
           ^                                                      |
           +--- progress, opened, text, end, notice, error <-- queue
"""

from __future__ import annotations

import argparse
import queue
import threading
import tkinter as tk
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tkinter import filedialog, ttk
from typing import Any

import hamburger_edge
from hamburger_edge import HamburgerError, Stats, Stream

POLL_MS = 30
MODELS = ("tiny", "voice-commands", "proofread", "smollm2-135m")  # the first one needs no download
MIN_CERTAINTY = 0.8  # of an answer, if the model's certainty was measured
UNSURE = "not sure: please say it another way"
SHADES = ("#cfe5fb", "#fde2bf", "#d5efcb", "#ead7f5")  # of consecutive groups; single tokens have none
ENDINGS = {"cancelled": "stopped", "length": "longest answer reached", "context": "the context is full"}


@dataclass(frozen=True)
class Event:
    kind: str  # "progress", "opened", "text", "end", "notice" or "error"
    text: str = ""
    size: int = 0  # for "text": tokens of the group; for "progress": percent
    stats: Stats | None = None  # for "end"
    unsure: bool = False  # for "end"
    messages: tuple[Any, ...] = ()  # for "opened": the messages of a resumed session


class LoadingStopped(Exception):
    """Raised while a model loads, after `Conversation.stop`."""


class Conversation:
    """Runs all blocking calls, one worker thread at a time, and puts the results into `events`."""

    def __init__(self, bundle: str, *, threads: int | None = None, **options: Any) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.options = options
        self.runtime: dict[str, Any] = {"threads": threads} if threads else {}
        self.model: Any = None  # a hamburger_edge.Model, once loaded
        self.chat: Any = None  # a hamburger_edge.Chat, once loaded
        self.load(bundle)

    @property
    def busy(self) -> bool:
        return self.worker.is_alive()

    @property
    def ready(self) -> bool:
        return self.chat is not None and not self.busy

    def load(self, bundle: str) -> None:
        """Load a model instead of this one; the first use of a built-in model downloads its base."""
        self.bundle, self._loading_stopped = bundle, False
        self._start(lambda: self._load(bundle))

    def ask(self, text: str) -> None:
        self._start(lambda: self._answer(lambda: self.chat.send(text)))

    def continue_answer(self) -> None:
        self._start(lambda: self._answer(lambda: self.chat.continue_answer()))

    def save(self, path: str) -> None:
        self._start(lambda: self._save(path))

    def open(self, path: str) -> None:
        self._start(lambda: self._open(path))

    def stop(self) -> None:
        """End the answer after its current step, or the loading. `continue_answer` resumes an answer."""
        self._loading_stopped = True
        if self.model is not None:
            self.model.cancel()

    def close(self) -> None:
        """Stop any answer, wait for the worker and free the model."""
        while self.busy:
            self.stop()  # repeated, because the worker may not have started its answer yet
            self.worker.join(0.05)
        if self.model is not None:
            self.model.close()

    def _start(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except HamburgerError as error:
                self.events.put(Event("error", str(error)))
            except Exception as error:  # report any error: an exception in a thread is not shown
                self.events.put(Event("error", f"{type(error).__name__}: {error}"))

        self.worker = threading.Thread(target=guarded, daemon=True)
        self.worker.start()

    def _load(self, bundle: str) -> None:
        if self.model is not None:
            self.model.close()
        self.model = self.chat = None
        try:
            self.model = hamburger_edge.load(bundle, progress=self._report, **self.runtime)
        except LoadingStopped:
            self.events.put(Event("notice", f"{bundle} was not loaded: stopped"))
            return
        info = self.model.info
        certainty = {"min_certainty": MIN_CERTAINTY} if info.certainty else {}
        self.chat = self.model.chat(**certainty, **self.options)
        self.events.put(Event("opened", f"{Path(bundle).name}: {info.precision} on {info.provider}"))

    def _report(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        if self._loading_stopped:
            raise LoadingStopped
        percent = 100 * done // total if total else 0
        self.events.put(Event("progress", f"{stage} {percent}% {note}".rstrip(), size=percent))

    def _answer(self, begin: Callable[[], Stream]) -> None:
        with begin() as stream:
            for chunk in stream:
                self.events.put(Event("text", chunk.text, size=len(chunk.tokens)))
        self.events.put(Event("end", stream.finish_reason or "", stats=stream.stats, unsure=stream.unsure))

    def _save(self, path: str) -> None:
        self.chat.save(path)
        self.events.put(Event("notice", f"saved to {path}"))

    def _open(self, path: str) -> None:
        self.chat = self.model.resume(path)
        self.events.put(Event("opened", f"opened {path}", messages=tuple(self.chat.messages)))


class Window:
    def __init__(self, root: tk.Tk, conversation: Conversation) -> None:
        self.root, self.conversation, self.groups = root, conversation, 0
        root.title("hamburger-edge")
        root.geometry("800x560")
        root.protocol("WM_DELETE_WINDOW", self.close)
        root.columnconfigure(0, weight=1)
        root.rowconfigure(1, weight=1)
        ttk.Style(root).theme_use("clam")
        self.models, self.progress = self._models()
        self.log = self._log()
        self.entry, self.buttons = self._bar()
        self.status = tk.StringVar(root, f"loading {conversation.bundle} ...")
        ttk.Label(root, textvariable=self.status, padding=(12, 4)).grid(row=3, sticky="ew", columnspan=2)
        self.poll()

    def _models(self) -> tuple[ttk.Combobox, ttk.Progressbar]:
        bar = ttk.Frame(self.root, padding=(12, 8))
        bar.grid(row=0, sticky="ew", columnspan=2)
        bar.columnconfigure(3, weight=1)
        ttk.Label(bar, text="Model", underline=0).grid(row=0, column=0, padx=(0, 6))
        models = ttk.Combobox(bar, values=MODELS, state="readonly", width=24)
        models.set(self.conversation.bundle)
        models.grid(row=0, column=1)
        models.bind("<<ComboboxSelected>>", lambda _: self.load(models.get()))
        self.root.bind("<Alt-m>", lambda _: models.focus())
        ttk.Button(bar, text="Folder ...", command=self.choose_folder).grid(row=0, column=2, padx=6)
        progress = ttk.Progressbar(bar, maximum=100)
        progress.grid(row=0, column=3, sticky="ew")
        return models, progress

    def _log(self) -> tk.Text:
        log = tk.Text(self.root, wrap="word", state="disabled", relief="flat", padx=16, pady=8, spacing3=3)
        log.configure(font="TkTextFont", background="white", foreground="#202020")
        log.tag_configure("user", foreground="#0b5394", font="TkHeadingFont", spacing1=12, spacing3=4)
        log.tag_configure("notice", foreground="#8a8a8a")
        log.tag_configure("error", foreground="#b00020")
        for number, shade in enumerate(SHADES):
            log.tag_configure(f"group{number}", background=shade)
        scroll = ttk.Scrollbar(self.root, command=log.yview)
        log.configure(yscrollcommand=scroll.set)
        log.grid(row=1, column=0, sticky="nsew")
        scroll.grid(row=1, column=1, sticky="ns")
        return log

    def _bar(self) -> tuple[ttk.Entry, dict[str, ttk.Button]]:
        bar = ttk.Frame(self.root, padding=(12, 8, 12, 0))
        bar.grid(row=2, sticky="ew", columnspan=2)
        bar.columnconfigure(0, weight=1)
        entry = ttk.Entry(bar, font="TkTextFont")
        entry.grid(row=0, column=0, sticky="nsew", padx=(0, 6))
        entry.bind("<Return>", lambda _: self.send())
        entry.focus()
        talk = self.conversation
        actions: dict[str, Callable[[], None]] = {"Send": self.send, "Stop": talk.stop}
        actions |= {"Continue": talk.continue_answer, "Save": self.save, "Open": self.open}
        buttons = {name: ttk.Button(bar, text=name, command=do, width=8) for name, do in actions.items()}
        for column, button in enumerate(buttons.values(), 1):
            button.grid(row=0, column=column, padx=2)
        return entry, buttons

    def load(self, bundle: str) -> None:
        if self.conversation.busy:
            self.models.set(self.conversation.bundle)
            return
        self.models.set(bundle)
        self.status.set(f"loading {bundle} ...")
        self.clear()
        self.conversation.load(bundle)

    def choose_folder(self) -> None:
        if folder := filedialog.askdirectory(title="A bundle's folder"):
            self.load(folder)

    def send(self) -> None:
        text = self.entry.get().strip()
        if text and self.conversation.ready:
            self.entry.delete(0, "end")
            self.write(f"{text}\n", "user")
            self.conversation.ask(text)

    def save(self) -> None:
        if path := filedialog.asksaveasfilename(defaultextension=".session"):
            self.conversation.save(path)

    def open(self) -> None:
        if path := filedialog.askopenfilename(filetypes=[("Sessions", "*.session"), ("All files", "*")]):
            self.conversation.open(path)

    def close(self) -> None:
        self.root.after_cancel(self.polling)
        self.conversation.close()
        self.root.destroy()

    def poll(self) -> None:
        """Show new events, and schedule the next poll."""
        self.show_news()
        self.polling = self.root.after(POLL_MS, self.poll)

    def show_news(self) -> None:
        talk = self.conversation
        while not talk.events.empty():
            event = talk.events.get()
            getattr(self, f"on_{event.kind}")(event)
        usable = {"Stop": talk.busy, "Continue": talk.ready and talk.chat.unfinished}
        for name, button in self.buttons.items():
            button.state(["!disabled" if usable.get(name, talk.ready) else "disabled"])

    def on_progress(self, event: Event) -> None:
        self.progress["value"] = event.size
        self.status.set(event.text)

    def on_opened(self, event: Event) -> None:
        self.progress["value"] = 0
        self.status.set(event.text)
        for role, text in event.messages:
            self.write(f"{text}\n", *(["user"] if role == "user" else []))

    def on_text(self, event: Event) -> None:
        merged = event.size > 1
        self.groups += merged
        for line in event.text.splitlines(keepends=True):  # shade the text, not the line ends
            self.write(line.rstrip("\n"), *([f"group{self.groups % len(SHADES)}"] if merged else []))
            self.write("\n" if line.endswith("\n") else "")

    def on_end(self, event: Event) -> None:
        ending = UNSURE if event.unsure and event.text not in ENDINGS else ENDINGS.get(event.text)
        self.write(f"  ({ending})\n" if ending else "\n", "notice")
        if (stats := event.stats) and stats.tokens:
            saved = round(100 * (1 - stats.kv_bytes / stats.kv_bytes_uncompressed))
            self.status.set(
                f"{stats.tokens_per_step:.2f} tokens/step     {stats.decode_tps:.0f} tokens/s     "
                f"KV {stats.kv_bytes / 2**20:.2f} MiB" + (f", {saved}% saved" if saved else "")
            )

    def on_notice(self, event: Event) -> None:
        self.progress["value"] = 0
        self.status.set(event.text)

    def on_error(self, event: Event) -> None:
        self.write(f"{event.text}\n", "error")
        self.status.set("error: see above")

    def clear(self) -> None:
        self.log.configure(state="normal")
        self.log.delete("1.0", "end")
        self.log.configure(state="disabled")

    def write(self, text: str, *tags: str) -> None:
        self.log.configure(state="normal")
        self.log.insert("end", text, tags)
        self.log.configure(state="disabled")
        self.log.see("end")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Chat with a bundle in a window.",
        argument_default=argparse.SUPPRESS,  # pass only the options given
        allow_abbrev=False,
    )
    parser.add_argument(
        "bundle", nargs="?", default=MODELS[0], help="folder of a bundle, or a built-in model (default tiny)"
    )
    parser.add_argument("--confidence", type=float, help="0 to 1 (default: as the model recommends)")
    parser.add_argument("--max-tokens", type=int, help="of an answer (default 256)")
    parser.add_argument("--threads", type=int, help="of the processor (default: all)")
    options = vars(parser.parse_args(arguments))
    root = tk.Tk()
    Window(root, Conversation(**options))
    root.mainloop()


if __name__ == "__main__":
    main()
