"""Command lines in options and recipes: programs of the user that judge answers or write examples."""

from __future__ import annotations

import shlex
import sys


def split_command(line: str) -> list[str]:
    """Return the words of a command line; `python` stands for the current interpreter.

    Raise ValueError if a quotation mark is not closed.
    """
    words = shlex.split(line)
    return [sys.executable, *words[1:]] if words[:1] == ["python"] else words


def last_line(errors: str) -> str:
    """Return the last line that a program wrote to its standard error, for a message."""
    return (errors.strip().splitlines() or ["no message"])[-1][:200]
