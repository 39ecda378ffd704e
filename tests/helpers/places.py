"""Where things lie in the checkout."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds until a test stops waiting; no assertion depends on it
PROGRAMS = ROOT / "tests" / "helpers" / "programs"  # run by tests in separate processes
shared: Path  # of all processes that run tests; set by tests/conftest.py


def environment(**changes: str) -> dict[str, str]:
    """For processes that import what tests import."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **changes}


def script(path: Path, name: str = "") -> Any:
    """A program that is no part of a package, as a module (default name: the file's)."""
    name = name or path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names(folder: Path) -> list[str]:
    """Return the names of a folder's entries."""
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
