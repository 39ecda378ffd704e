"""A command as data, the source of the parser, `--help` and the reference."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One argument of a command: `flags` and `settings` are those of `add_argument`."""

    flags: tuple[str, ...]
    settings: Mapping[str, Any]
    rare: bool = False  # shown by --help-all only


def option(*flags: str, rare: bool = False, **settings: Any) -> Option:
    return Option(flags, settings, rare)


@dataclass(frozen=True)
class Command:
    name: str
    summary: str
    options: tuple[Option, ...]
    examples: tuple[str, ...]
    run: Callable[[argparse.Namespace], int | None]  # its result is the exit code; None: 0
    notes: str = ""
    extra: str = "export"  # extra of the package with the command's optional dependencies
