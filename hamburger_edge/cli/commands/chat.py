"""`hamburger-edge chat`: a conversation on the terminal."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Unpack

from hamburger_edge.chat.conversation import Chat
from hamburger_edge.chat.stream import Stream
from hamburger_edge.cli.answers import GroupPainter, cut_line, stats_line
from hamburger_edge.cli.command import Command
from hamburger_edge.cli.options import ANSWER, BUNDLE, RUNTIME, answer_options, open_model
from hamburger_edge.errors import HamburgerError, InputError
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.loop.settings import Options
from hamburger_edge.model import Model
from hamburger_edge.support.terminal import interruptible, is_terminal, note

HELP = "/continue  /save FILE  /load FILE  /stats  /reset  /quit    Ctrl-C stops an answer"


def run(options: argparse.Namespace) -> None:
    with open_model(options) as model:
        converse(
            model,
            system=options.system,
            show_steps=options.show_steps,
            **answer_options(options),
        )


def converse(model: Model, *, system: str | None, show_steps: bool, **options: Unpack[Options]) -> None:
    """Read turns until /quit or the end of input; after an error the conversation continues."""
    chat = model.chat(system, **options)
    painter = GroupPainter(is_terminal(sys.stdout)) if show_steps else None
    interactive = sys.stdin.isatty()
    if isinstance(sys.stdin, io.TextIOWrapper):  # text that is not UTF-8 fails in its own turn only
        sys.stdin.reconfigure(errors="surrogateescape")
    if interactive:
        print(f"{model.info.backend} {model.info.provider} {model.info.precision}    {HELP}")
        if model.template.is_task:
            print("a model of one task: it answers each message on its own")
    while True:
        try:
            text = input("\n> " if interactive else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
            print("\n/quit or Ctrl-D ends the program", end="")
            continue
        try:
            if text.startswith("/"):
                name, _, argument = text[1:].strip().partition(" ")
                if name in ("quit", "exit"):
                    return
                chat = _command(model, chat, name, argument.strip(), painter)
            elif text.strip():
                forgotten = chat.forgotten
                _answer(chat.send(text), painter, model.info)
                if chat.forgotten > forgotten:
                    note(f"the context is full: the first {chat.forgotten} messages have left it")
        except HamburgerError as error:
            note(f"error: {error}")
        except KeyboardInterrupt:  # between two turns: the conversation is unchanged
            if not interactive:
                raise
            print()


def _answer(stream: Stream, painter: GroupPainter | None, info: ModelInfo) -> None:
    if painter:
        painter.texts.clear()  # an error may have ended the answer before
    with stream, interruptible(stream.cancel):
        for chunk in stream:
            shown = painter.paint(chunk.text, len(chunk.tokens)) if painter else chunk.text
            print(shown, end="", flush=True)
    stopped = stream.finish_reason == "cancelled"
    print(" [stopped]" if stopped else "", flush=True)
    if painter and (line := painter.line()):
        note(line)
    if cut := cut_line(stream, info):
        note(f"{cut}, or go on with  /continue" if stream.finish_reason == "length" else cut)
    if stopped and not sys.stdin.isatty():  # piped input: Ctrl-C ends the program
        raise KeyboardInterrupt


def _command(model: Model, chat: Chat, name: str, argument: str, painter: GroupPainter | None) -> Chat:
    """Run a slash command and return the conversation to continue with."""
    if name in ("save", "load") and not argument:
        raise InputError(f"/{name} needs a file name")
    if name == "continue":
        _answer(chat.continue_answer(), painter, model.info)
    elif name == "save":
        chat.save(argument)
        print(f"saved to {argument}")
    elif name == "load":
        chat = model.resume(argument)
        print(f"loaded {len(chat.messages)} messages from {argument}")
    elif name == "reset":
        chat.reset()
        print("a new conversation")
    elif name == "stats":
        print(stats_line(chat.stats))
        print(f"{len(chat.groups)} groups hold {sum(map(len, chat.groups))} tokens of conversation")
    else:
        print(HELP)
    return chat


COMMAND = Command(
    name="chat",
    summary="talk with a model; its answers stay compressed in the cache",
    options=(
        BUNDLE,
        *RUNTIME,
        *ANSWER,
    ),
    examples=("hamburger-edge chat bundle", "hamburger-edge chat bundle --temperature 0.7 --show-steps"),
    run=run,
    notes="Commands: /continue, /save FILE, /load FILE, /stats, /reset, /quit. Ctrl-C stops the answer.",
)
