"""Examples from a command that writes JSON lines, possibly without end."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hamburger_edge.errors import InputError
from hamburger_edge.support.command_line import last_line, split_command
from hamburger_edge.support.files import TEXT


def is_command(source: str) -> bool:
    """Whether `source` is the command line of an installed program, and no file."""
    if Path(source).exists():
        return False
    try:
        words = split_command(source)
    except ValueError:
        return False
    return len(words) > 1 and shutil.which(words[0]) is not None


def command_lines(command: str, limit: int) -> Iterator[tuple[str, str]]:
    """Yield (location for errors, line) for the first `limit` lines of a command, then end it."""
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                split_command(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        except OSError as error:
            raise InputError(f"examples {command}: cannot be run ({error.strerror})") from error
        with process:
            assert process.stdout is not None
            try:
                for number in range(1, limit + 1):
                    where = f"examples {command}, line {number}"
                    if line := process.stdout.readline(TEXT):
                        yield where, _text(line, where)
                    elif status := process.wait():
                        errors.seek(0)
                        reason = last_line(errors.read().decode("utf-8", "replace"))
                        raise InputError(f"examples {command}: ended with status {status}: {reason}")
                    else:
                        return
            finally:
                process.kill()  # without effect on a command that has ended


def _text(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text ({error.reason})") from error
