"""Output of commands. The checks find an unwritable output before the long work, not after it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from hamburger_edge.errors import InputError


def check_file(name: str | None) -> None:
    """Raise an InputError unless the file can be written, or is None."""
    if name is None:
        return
    path = Path(name).absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{name}: no file can be written there: name a file in a folder that exists")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{name}: may not be written: choose another place")


def check_folder(name: str | None) -> None:
    """Raise an InputError unless the folder for pictures is writable, or can be made."""
    if name is None:
        return
    path = Path(name).absolute()
    there = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    if not there.is_dir():
        raise InputError(f"{name}: {there} is no folder: name a folder for the pictures")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{name}: {there} may not be written to: choose another place")


def show_report(options: argparse.Namespace, figures: Any, tables: str) -> None:
    """Print a report's tables, with --json its figures; write these to the file of --report."""
    if options.json:
        print_json(figures)
    else:
        print(tables)
    sys.stdout.flush()  # first, because writing the file may fail
    if options.report is not None:
        text = json.dumps(figures, indent=1, ensure_ascii=False, allow_nan=False)
        Path(options.report).write_text(text + "\n", encoding="utf-8")


def print_json(data: Any) -> None:
    readable = sys.stdout.encoding.lower() == "utf-8"
    print(json.dumps(data, ensure_ascii=not readable))
