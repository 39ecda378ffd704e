"""What is tracked: no long file, nothing private, nothing heavy."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from module_imports import PROJECT, SISTERS
from places import ROOT


def test_no_file_is_too_long() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.js", "*.mjs"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    long = {f: n for f in tracked if (n := len((ROOT / f).read_text().splitlines())) > 600}
    assert not long


def test_nothing_tracked_is_private_or_heavy() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    sizes = {f: (ROOT / f).stat().st_size for f in tracked if f and (ROOT / f).is_file()}
    assert sum(sizes.values()) < 80 << 20  # most of it are the models of models/zoo
    heavy = [f for f in sizes if f.endswith((".pt", ".ckpt", ".bin", ".pkl"))]
    assert {Path(f).name for f in heavy} <= {"stored.bin", "draft_index.bin"}  # of models/zoo


def test_links_let_editors_and_mypy_find_every_package() -> None:
    staged = ["git", "ls-files", "--stage", PROJECT]
    entries = re.findall(r"120000 (\w+) \d\t(.*)", subprocess.check_output(staged, cwd=ROOT, text=True))
    links = {
        name: subprocess.check_output(["git", "cat-file", "blob", blob], cwd=ROOT, text=True)
        for blob, name in entries
    }
    assert links == {f"{PROJECT}/{part}": f"../{part}" for part in SISTERS}
