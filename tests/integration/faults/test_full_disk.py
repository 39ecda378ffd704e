"""A disk that is full, at any write: one clear error, nothing half-written that is taken for a whole, and the
same work goes on as soon as there is room. The disk is a small one of memory, mounted for the test.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.long_work import WORKS, Work, check, files

from hamburger_edge.cli.main import main
from hamburger_edge.errors import LONGEST, HamburgerError

pytestmark = pytest.mark.slow

PLENTY = 1 << 28


def mount(folder: Path, size: int, how: str = "") -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"{how}size={size}", "none", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def resize(disk: Path, size: int) -> None:
    mount(disk, size, "remount,")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount(folder, PLENTY)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a disk of memory can be mounted on Linux, by root: {error}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)  # a caught error may hold a file open


@pytest.fixture(scope="module", params=WORKS)
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Work, Path, Path]:
    """Work, what it starts from, and what comes of it where there is room."""
    work = WORKS[request.param]
    given = tmp_path_factory.mktemp("given")
    work.prepare(given)
    made = tmp_path_factory.mktemp("whole")
    work.run(given, made)
    check(given, made)
    return work, given, made


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_a_full_disk(share: float, begun: tuple[Work, Path, Path], disk: Path) -> None:
    work, given, whole = begun
    pages = sum(-(-path.stat().st_size // 4096) for path in whole.rglob("*") if path.is_file())
    resize(disk, max(1, int(share * pages)) * 4096)
    made = disk / "made"
    with pytest.raises((OSError, HamburgerError)) as caught:
        work.run(given, made)
    error = caught.value
    assert "No space left on device" in str(error)
    assert isinstance(error, HamburgerError) or error.errno == errno.ENOSPC
    check(given, made)
    resize(disk, PLENTY)
    work.run(given, made)
    check(given, made)
    assert files(made).keys() >= files(whole).keys()
    assert not list(made.rglob("*.tmp"))


def test_the_command_line_says_so_in_a_line(
    tmp_path: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    WORKS["export"].prepare(tmp_path)
    resize(disk, 40 * 4096)
    words = ["export", str(tmp_path / "checkpoint"), "-o", str(disk / "bundle"), "--precision", "fp32"]
    assert main(words) == 1
    [said] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "No space left on device" in said
    assert len(said) <= LONGEST + len("error: ")
    assert list(disk.iterdir()) == []
    resize(disk, PLENTY)
    assert main(words) == 0
