"""`hamburger-edge chat`: a conversation on the terminal."""

from __future__ import annotations

import sys
from typing import Unpack

from hamburger_edge.chat import Chat
from hamburger_edge.errors import HamburgerError, InputError
from hamburger_edge.model import Model
from hamburger_edge.settings import Options
from hamburger_edge.terminal import GroupPainter, is_terminal, stats_line

HELP = "/save FILE  /load FILE  /stats  /reset  /quit    Ctrl-C stops an answer"


def converse(model: Model, *, system: str | None, show_steps: bool, **options: Unpack[Options]) -> None:
    """Read turns until /quit or the end of input; errors are shown and the conversation goes on."""
    chat = model.chat(system, **options)
    painter = GroupPainter(is_terminal(sys.stdout)) if show_steps else None
    interactive = sys.stdin.isatty()
    if interactive:
        print(f"{model.info.backend} {model.info.provider} {model.info.precision}    {HELP}")
    while True:
        try:
            text = input("\n> " if interactive else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
            return
        try:
            if text.startswith("/"):
                name, _, argument = text[1:].strip().partition(" ")
                if name in ("quit", "exit"):
                    return
                chat = _command(model, chat, name, argument.strip())
            elif text.strip():
                _answer(chat, text, painter)
        except HamburgerError as error:
            print(f"error: {error}", file=sys.stderr)


def _answer(chat: Chat, text: str, painter: GroupPainter | None) -> None:
    with chat.send(text) as stream:
        while True:
            try:
                record = next(stream, None)
            except KeyboardInterrupt:
                stream.cancel()
                print(" [stopped]", end="")
                break
            if record is None:
                break
            shown = painter.paint(record.text, len(record.tokens)) if painter else record.text
            print(shown, end="", flush=True)
    print()


def _command(model: Model, chat: Chat, name: str, argument: str) -> Chat:
    """Returns the conversation to go on with."""
    if name in ("save", "load") and not argument:
        raise InputError(f"/{name} needs a file name")
    if name == "save":
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
