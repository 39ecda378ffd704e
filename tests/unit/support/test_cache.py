"""Where locks lie: in the cache folder, or elsewhere where that cannot be."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hamburger_edge.support.cache import lock_for
from hamburger_edge.support.files import locked


def test_a_lock_needs_no_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every export locked below the home folder, also where that is read-only."""
    (tmp_path / "file").write_text("no folder can be made in this")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    assert lock_for(tmp_path / "bundle").parent == tmp_path / "home" / "locks"
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "file" / "home"))
    lock = lock_for(tmp_path / "bundle")
    assert lock.is_relative_to(tmp_path / "temporary")
    assert lock == lock_for(tmp_path / "bundle") != lock_for(tmp_path / "another")
    with locked(lock):
        assert lock.exists()
    assert not lock.exists()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        lock_for(tmp_path / "bundle")


def test_one_at_a_time_although_the_file_goes_each_time(tmp_path: Path) -> None:
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
    assert list(tmp_path.iterdir()) == []
