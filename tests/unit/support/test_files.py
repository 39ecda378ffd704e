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
    with pytest.raises(OSError, match="5 bytes, of which at most 4 are read"):
        open_regular(tmp_path / "file", most=4)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular("/dev/zero")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nothing")
    with pytest.raises(OSError, match="null"):
        open_regular("a\0b")


def test_what_is_no_regular_file_keeps_its_name(tmp_path: Path) -> None:
    """A file would take the place of a device, for who has the right to."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a regular file"), write_atomically(place):
            pass
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
