"""A full disk gives one clear error at any write, and the work finishes once there is room.

The disk is a small tmpfs, mounted for the test.
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
def finished_work(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Work, Path, Path]:
    """A command, the folder of its inputs, and its output on a disk with room."""
    work = WORKS[request.param]
    inputs = tmp_path_factory.mktemp("inputs")
    work.prepare(inputs)
    output = tmp_path_factory.mktemp("whole")
    work.run(inputs, output)
    check(inputs, output)
    return work, inputs, output


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_work_on_a_full_disk_fails_and_finishes_once_there_is_room(
    share: float, finished_work: tuple[Work, Path, Path], disk: Path
) -> None:
    work, inputs, whole = finished_work
    pages = sum(-(-path.stat().st_size // 4096) for path in whole.rglob("*") if path.is_file())
    resize(disk, max(1, int(share * pages)) * 4096)
    output = disk / "output"
    with pytest.raises((OSError, HamburgerError)) as caught:
        work.run(inputs, output)
    error = caught.value
    assert "No space left on device" in str(error)
    assert isinstance(error, HamburgerError) or error.errno == errno.ENOSPC
    check(inputs, output)
    resize(disk, PLENTY)
    work.run(inputs, output)
    check(inputs, output)
    assert files(output).keys() >= files(whole).keys()
    assert not list(output.rglob("*.tmp"))


def test_full_disk_is_an_error_of_one_line(
    tmp_path: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    WORKS["export"].prepare(tmp_path)
    resize(disk, 40 * 4096)
    words = ["export", str(tmp_path / "checkpoint"), "-o", str(disk / "bundle"), "--precision", "fp32"]
    assert main(words) == 1
    [message] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "No space left on device" in message
    assert len(message) <= LONGEST + len("error: ")
    assert list(disk.iterdir()) == []
    resize(disk, PLENTY)
    assert main(words) == 0
