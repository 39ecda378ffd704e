"""The example of function calling prints a call and its result, and dispatches each function."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT, script
from helpers.schemas import check

import hamburger_edge

example = script(ROOT / "examples" / "function_calling.py")


def test_program_prints_a_call_and_its_result(
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


def test_each_function_is_called(bundle: Path) -> None:
    functions = set()
    with hamburger_edge.load(bundle, threads=1) as model:
        for seed in range(20):
            answer = model.generate(
                "hello", json_schema=example.CALL, temperature=4, seed=seed, max_tokens=250
            )
            assert answer.complete
            check(example.CALL, answer.text)
            call = json.loads(answer.text)
            assert example.dispatch(call)
            functions.add(call["name"])
    assert functions == set(example.TOOLS)
