"""What may have a path and is no regular file is refused, and not waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hamburger_edge.support.files import open_regular, read_regular, write_atomically

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no pipes with a path there")


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
        ("", IsADirectoryError, ""),
        ("nothing", FileNotFoundError, ""),
        ("a\0b", OSError, "null"),
    ):
        with pytest.raises(error, match=told):
            open_regular(tmp_path / place, most=4)


def test_what_is_no_regular_file_keeps_its_name(tmp_path: Path) -> None:
    """A file would take the place of a device, for who has the right to."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a regular file"), write_atomically(place):
            pass
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
