"""The cache folder: listed entries, deleted entries, and waiting processes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from hamburger_edge.cli.main import main
from hamburger_edge.support.cache import cache_entries, clear_cache, entry_lock
from hamburger_edge.support.files import locked

FILES = {  # with their sizes
    "bases/smollm2-135m/model.gguf": 3_000_000,
    "bases/smollm2-135m/fetched.json": 100,
    "bundles/tiny-0a1b2c3d4e5f/weights.bin": 1_500_000,
    "bundles/.tiny-0a1b2c3d4e5f.0123abcd.partial/weights.bin": 700_000,
    "mine/bundle/weights.bin": 9,
}
BASE, BUNDLE = "bases/smollm2-135m", "bundles/tiny-0a1b2c3d4e5f"
PARTIAL = "bundles/.tiny-0a1b2c3d4e5f.0123abcd.partial"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    for name, size in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["cache", *words]) == 0
    return capsys.readouterr().out


def test_command_lists_entries_with_their_sizes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split() for line in printed(capsys).splitlines()]
    assert lines == [
        [f"{home}:"],
        [BASE, "3.0", "MB"],
        [PARTIAL, "0.7", "MB"],
        [BUNDLE, "1.5", "MB"],
        ["total", "5.2", "MB"],
    ]
    listed = json.loads(printed(capsys, "--json"))
    assert listed["entries"][0] == {"name": BASE, "bytes": 3_000_100}
    assert (listed["folder"], listed["cleared"], listed["bytes"]) == (str(home), False, 5_200_100)


def test_command_deletes_one_entry_or_a_kind_or_all(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def left() -> list[str]:
        return [entry.name for entry in cache_entries()]

    assert f"cleared from {home}:" in printed(capsys, "--clear", BUNDLE)
    assert left() == [BASE, PARTIAL]
    assert json.loads(printed(capsys, "--clear", "bundles", "--json"))["entries"] == [
        {"name": PARTIAL, "bytes": 700_000}
    ]
    assert left() == [BASE]
    printed(capsys, "--clear")
    assert left() == []
    assert {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()} == {
        "mine/bundle/weights.bin"
    }
    assert json.loads(printed(capsys, "--clear", "--json"))["bytes"] == 0


@pytest.mark.parametrize("name", ["mine", "tiny-0a1b2c3d4e5f", "../x", "locks"])
def test_name_of_no_entry_is_refused(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--clear", name]) == 1
    fault = f"{name!r} is not in the cache folder {home}: name one of its entries ({BASE}, {PARTIAL}, "
    assert fault in capsys.readouterr().err
    assert all((home / file).exists() for file in FILES)


@pytest.mark.parametrize("name", [BUNDLE, PARTIAL])
def test_deleting_an_entry_waits_for_the_process_that_makes_it(name: str, home: Path) -> None:
    deleting = threading.Thread(target=clear_cache, args=(name,))
    with locked(entry_lock(home / BUNDLE)):
        deleting.start()
        deleting.join(0.05)
        assert (home / name).exists()
    deleting.join()
    assert not (home / name).exists()
    assert not entry_lock(home / BUNDLE).exists()
