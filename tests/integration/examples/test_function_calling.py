"""The example of function calling: as a program, and what it makes of every function."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT, script
from helpers.schemas import check

import hamburger_edge

example = script(ROOT / "examples" / "function_calling.py")


def test_the_program(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["function_calling.py", str(bundle), "add 1 and 2"])
    example.main()
    call, result, *_ = capsys.readouterr().out.splitlines()
    assert json.loads(call)["name"] in example.TOOLS
    assert isinstance(json.loads(result.removeprefix("-> ")), dict)
    monkeypatch.setattr(sys, "argv", ["function_calling.py", "no-such-folder"])
    with pytest.raises(SystemExit, match=r"^error: "):
        example.main()


def test_every_function_can_be_called(bundle: Path) -> None:
    called = set()
    with hamburger_edge.load(bundle, threads=1) as model:
        for seed in range(20):
            said = model.generate("hello", json_schema=example.CALL, temperature=4, seed=seed, max_tokens=250)
            assert said.complete
            check(example.CALL, said.text)
            call = json.loads(said.text)
            assert example.dispatch(call)
            called.add(call["name"])
    assert called == set(example.TOOLS)
