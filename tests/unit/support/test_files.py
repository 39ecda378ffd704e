"""Regular files alone are opened; a finished folder is on the disk before it takes its name; locks between
processes; memory that a process gives back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.places import names

from hamburger_edge.support.cache import lock_for
from hamburger_edge.support.files import locked, open_regular, read_regular, write_atomically
from hamburger_edge.support.folders import publish


@pytest.mark.skipif(os.name == "nt", reason="no pipes with a path there")
def test_only_regular_files_of_a_bounded_size_are_opened_or_replaced(tmp_path: Path) -> None:
    """A file would take the place of a device, for who has the right to."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "link"):
        assert read_regular(tmp_path / name, limit=5) == b"12345"
    for place, error, told in (
        ("file", OSError, "5 bytes, of which at most 4 are read"),
        ("pipe", OSError, "not a regular file"),
        ("", IsADirectoryError, None),
        ("nothing", FileNotFoundError, None),
        ("a\0b", OSError, "null"),
    ):
        with pytest.raises(error, match=told):
            open_regular(tmp_path / place, limit=4)
    for place in ("pipe", ""):
        with pytest.raises(OSError, match="not a regular file"), write_atomically(tmp_path / place):
            pass
    assert (tmp_path / "pipe").is_fifo()
    assert names(tmp_path) == ["file", "link", "pipe"]


@pytest.mark.parametrize("replace", [False, True], ids=["new", "swapped"])
def test_files_are_flushed_before_the_rename(
    replace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial, folder = tmp_path / "partial", tmp_path / "bundle"
    (partial / "inner").mkdir(parents=True)
    files = {Path("weights.bin"), Path("inner/part")}
    for file in files:
        (partial / file).write_text("new")
    if replace:
        folder.mkdir()
        (folder / "old.bin").write_text("old")
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


def test_lock_needs_no_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every export locked below the home folder, also where that is read-only."""
    (tmp_path / "file").write_text("no folder can be made in this")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    assert lock_for(tmp_path / "bundle").parent == tmp_path / "home" / "locks"
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "file" / "home"))
    lock = lock_for(tmp_path / "bundle")
    assert lock.is_relative_to(tmp_path / "temporary")
    assert lock == lock_for(tmp_path / "bundle") != lock_for(tmp_path / "another")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        lock_for(tmp_path / "bundle")


def test_lock_excludes_others_although_its_file_is_deleted(tmp_path: Path) -> None:
    holders: list[int] = []

    def hold(number: int) -> int:
        with locked(tmp_path / "lock"):
            holders.append(number)
            time.sleep(0.001)
            together = len(holders)
            holders.remove(number)
        return together

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(hold, range(200))) == {1}
    assert names(tmp_path) == []


# blocks too small for a separate mapping; the last one keeps the heap from shrinking
FREED = """
from pathlib import Path
from hamburger_edge.support.processors import give_back_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [bytes(1 << 16) for _ in range(2000)]
del blocks[:-1]
kept = resident()
give_back_memory()
print(kept - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take memory back themselves")
def test_freed_memory_is_returned_to_the_system() -> None:
    assert int(subprocess.check_output([sys.executable, "-c", FREED])) > 50_000_000
