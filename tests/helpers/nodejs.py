"""Node.js and the packages of runtimes/javascript, where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.places import ROOT

JAVASCRIPT = ROOT / "runtimes" / "javascript"
PACKAGES = JAVASCRIPT / "node_modules"
NODE = shutil.which("node")
INSTALLED = (PACKAGES / ".package-lock.json").is_file()  # npm writes it last

missing = "packages are missing: cd runtimes/javascript && npm install --ignore-scripts"
needs_packages = pytest.mark.skipif(not INSTALLED, reason=missing)
needs_node = pytest.mark.skipif(NODE is None or not INSTALLED, reason=f"no node, or its {missing}")


def node(*words: str | Path, folder: Path = JAVASCRIPT, **variables: str | Path) -> str:
    """Run Node.js with GOLDENS or BUNDLE, but never those of the caller's environment."""
    environment = {key: value for key, value in os.environ.items() if key not in ("GOLDENS", "BUNDLE")}
    environment |= {name.upper(): str(value) for name, value in variables.items()}
    command = [str(NODE), *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout
