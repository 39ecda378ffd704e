"""What has a path and is no regular file is refused at once; a finished folder is on the disk before it takes
its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hamburger_edge.support.files import open_regular, read_regular, write_atomically
from hamburger_edge.support.folders import publish

pipes = pytest.mark.skipif(os.name == "nt", reason="no pipes with a path there")


@pipes
def test_only_regular_files_of_a_bounded_size_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "link"):
        assert read_regular(tmp_path / name, most=5) == b"12345"
    for place, error, told in (
        ("file", OSError, "5 bytes, of which at most 4 are read"),
        ("pipe", OSError, "not a regular file"),
        ("/dev/zero", OSError, "not a regular file"),
        ("", IsADirectoryError, None),
        ("nothing", FileNotFoundError, None),
        ("a\0b", OSError, "null"),
    ):
        with pytest.raises(error, match=told):
            open_regular(tmp_path / place, most=4)


@pipes
def test_what_is_no_regular_file_keeps_its_name(tmp_path: Path) -> None:
    """A file would take the place of a device, for who has the right to."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a regular file"), write_atomically(place):
            pass
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


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
