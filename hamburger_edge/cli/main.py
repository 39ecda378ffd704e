"""The entry point: it runs one command and converts expected errors to one line and an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from hamburger_edge.cli.parser import build_parser
from hamburger_edge.errors import HamburgerError, needing
from hamburger_edge.support.terminal import note, silence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; expected errors print one line and return 1."""
    debug = False
    _open_streams()
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if isinstance(sys.stdout, io.TextIOWrapper):  # characters that the terminal lacks are replaced
        sys.stdout.reconfigure(errors="replace")
    try:
        options = build_parser().parse_args(arguments)
        debug = options.debug
        with needing(options.command.extra):
            code = options.command.run(options)
        sys.stdout.flush()
        return code or 0
    except HamburgerError as error:
        if debug:
            traceback.print_exc()
        note(f"error: {error}")
        return 1
    except (MemoryError, RuntimeError) as error:
        of_a_gpu = type(error).__name__ == "OutOfMemoryError"  # torch's class
        if not (of_a_gpu or isinstance(error, MemoryError)):
            raise
        if debug:
            traceback.print_exc()
        note("error: not enough memory: close other programs, or ask for less (context, rows, precision)")
        return 1
    except KeyboardInterrupt:
        note("")
        note("interrupted")
        return 130
    except BrokenPipeError:  # the reader of standard output closed it
        silence(sys.stdout)
        return 0
    except OSError as error:
        if debug:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        silence(sys.stdout)  # on a full disk, the flush at exit would fail again
        path = "" if error.filename is None else f"{error.filename}: "
        note(f"error: {path}{error.strerror or error}: check that it is there, its rights and the space")
        return 1


def _open_streams() -> None:
    """Replace closed standard streams, which Python sets to None, by the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 open to the end


def _show_warning(message: Warning | str, *_: Any) -> None:
    note(f"warning: {message}")
