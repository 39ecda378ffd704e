"""`make kills` and `make soak`, for a minute instead of an hour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, environment

FAULTS = ROOT / "tests" / "faults"


def run(*words: str | Path) -> str:
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
@pytest.mark.parametrize("work", ["distill", "train", "session"])
def test_kills(work: str, tmp_path: Path) -> None:
    said = run(FAULTS / "kills.py", "--work", work, "--kills", "4", "--folder", tmp_path)
    assert f"{work}: " in said
    assert "all that was left is whole" in said


def test_soak(tmp_path: Path) -> None:
    assert "texts identical" in run(FAULTS / "soak.py", "--tokens", "1500", "--folder", tmp_path)
