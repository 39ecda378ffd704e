"""A command as data: the parser, `--help` and the reference are made from it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One argument of a command; the fields are argparse's."""

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
    run: Callable[[argparse.Namespace], None]
    notes: str = ""
    extra: str = "export"  # of the package, which brings what the command may lack
