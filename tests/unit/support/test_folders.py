"""A finished folder is on the disk before it takes its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hamburger_edge.support.folders import publish


@pytest.mark.parametrize("replace", [False, True], ids=["new", "swapped"])
def test_files_are_flushed_before_the_name_is_theirs(
    replace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial, folder = tmp_path / "partial", tmp_path / "bundle"
    (partial / "inner").mkdir(parents=True)
    files = {Path("weights.bin"), Path("inner/part")}
    for file in files:
        (partial / file).write_text("new")
    if replace:
        folder.mkdir()
        (folder / "weights.bin").write_text("old")
    flushed: set[int] = set()
    to_disk = os.fsync

    def fsync(handle: int) -> None:
        to_disk(handle)
        if (partial / "inner").exists():  # still under its own name
            flushed.add(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    publish(partial, folder)
    assert {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == files
    assert {(folder / file).stat().st_ino for file in files} <= flushed
    assert not partial.exists()
