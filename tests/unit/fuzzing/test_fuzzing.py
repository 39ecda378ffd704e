"""The fuzzer notices what it is there to notice."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from places import script

from hamburger_edge.errors import InputError

FOLDER = Path(__file__).parents[2] / "fuzzing"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process for every case is forked")


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[ModuleType]:
    """It is run as a program: `python tests/fuzzing`."""
    pytest.importorskip("torch")
    sys.path.insert(0, str(FOLDER))
    yield script(FOLDER / "__main__.py", "fuzzer")
    sys.path.remove(str(FOLDER))


def refuse(message: str) -> Callable[[Path], str]:
    def use(folder: Path) -> str:
        raise InputError(message)

    return use


def wrong(fuzzer: ModuleType, folder: Path, use: Callable[[Path], str], **about: bool) -> str | None:
    folder.mkdir(exist_ok=True)
    (folder / "file").write_bytes(b"honest")
    case = {"target": "one", "file": "file", "sealed": False, "changes": [{"kind": "cut", "at": 0.5}]}
    target = fuzzer.targets.Target("one", ("file",), use, **about)
    # a fork of this process too, whatever the tests before have left in its memory
    honest = fuzzer.attempt(None, replace(target, use=lambda folder: "honest"), folder, 20)
    found: str | None = fuzzer.judge(case, target, fuzzer.attempt(case, target, folder, 2), honest)
    assert (folder / "file").read_bytes() == b"honest"  # a copy is damaged
    return found


def test_what_is_right(fuzzer: ModuleType, tmp_path: Path) -> None:
    assert wrong(fuzzer, tmp_path, refuse("file: damaged: get it again"), hashed=True) is None
    assert wrong(fuzzer, tmp_path, lambda folder: "honest", hashed=True) is None
    assert wrong(fuzzer, tmp_path, waits_a_little, hashed=True) is None
    assert wrong(fuzzer, tmp_path, lambda folder: (folder / "file").read_text()) is None  # nobody hashed it


def raises(folder: Path) -> str:
    raise KeyError("layers")


def hangs(folder: Path) -> str:
    while True:
        pass


def waits(folder: Path) -> str:
    time.sleep(60)
    return "honest"


def waits_a_little(folder: Path) -> str:
    """As on a busy machine: longer than it may take, but of the processor's time hardly any."""
    time.sleep(4)
    return "honest"


def dies(folder: Path) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def test_what_is_wrong(fuzzer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzer, "WAITS", 2)
    found = {
        "raised KeyError": raises,
        "no end after 2 s": hangs,
        "no end after 2": waits,
        "signal 9": dies,
        "said something else": lambda folder: (folder / "file").read_text(),
    }
    for told, use in found.items():
        assert str(wrong(fuzzer, tmp_path, use, hashed=True)).startswith(told)
    case = {"sealed": False}
    target = fuzzer.targets.Target("one", ("file",), raises)
    assert "of memory" in fuzzer.judge(case, target, ("said", "", 3000), ("said", "", 1000))


def test_a_case_is_the_same_again_and_can_be_kept(fuzzer: ModuleType) -> None:
    for number in range(300):
        case = fuzzer.case_of(7, number)
        assert case == fuzzer.case_of(7, number) == json.loads(json.dumps(case))
        damaged = fuzzer.changes.apply(b'{"a": [1, {"b": "c"}], "d": null}', case["changes"])
        assert isinstance(damaged, bytes)
