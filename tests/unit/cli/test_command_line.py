"""Command lines: their help and documentation, and wrong ones, which say so in one line."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from places import ROOT

import hamburger_edge.cli.main as cli
from hamburger_edge.cli.parser import COMMANDS, build_parser
from hamburger_edge.cli.reference import markdown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_has_examples_and_each_of_them_parses(command, capsys) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit) as exit:
        cli.main([command.name, "--help"])
    assert exit.value.code == 0
    shown = capsys.readouterr().out
    assert command.examples
    for example in command.examples:
        assert example in shown
        words = shlex.split(example.rpartition("| ")[2])
        assert words[0] == "hamburger-edge"
        assert build_parser().parse_args(words[1:]).command is command


def test_help_fits_a_screen_and_help_all_has_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def shown(*words: str) -> str:
        with pytest.raises(SystemExit) as exit:
            cli.main(list(words))
        assert exit.value.code == 0
        return capsys.readouterr().out

    everyday, everything = shown("run", "--help"), shown("run", "--help-all")
    assert len(everyday.splitlines()) <= 50
    assert "--top-p" not in everyday
    for command in COMMANDS:
        if command.name == "run":
            assert all(each.flags[0] in everything for each in command.options[2:])
    for heading in ("use:\n  demo", "make:\n  export", "check:\n  verify", "research:\n  distill"):
        assert heading in shown("--help")


def test_every_command_is_registered_and_the_documentation_is_current() -> None:
    modules = {path.stem for path in (ROOT / "hamburger_edge/cli/commands").glob("[!_]*.py")}
    assert [command.name for command in COMMANDS if command.name not in modules] == []
    assert len(COMMANDS) == len(modules)
    assert (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8") == markdown()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "{nowhere}", "hi"],
        ["run", "{empty}", "hi"],
        ["run", "{file}", "hi"],
        ["run", "{broken}", "hi"],
        ["chat", "{nowhere}"],
        ["verify", "{nowhere}"],
        ["inspect", "{nowhere}"],
        ["inspect", "{broken}"],
        ["export", "{nowhere}", "-o", "{new}"],
        ["export", "{broken}", "-o", "{new}"],
        ["fetch", "no-such-model"],
        ["demo", "no-such-model"],
        ["demo", "{empty}"],
        ["run", "{long}", "hi"],
        ["distill", "{nowhere}", "-o", "{new}", "--tokens", "10"],
        ["segment", "{nowhere}"],
        ["train", "{nowhere}", "-o", "{new}"],
        ["train", "{file}", "-o", "{new}"],
    ],
    ids=" ".join,
)
def test_bad_places_give_one_line_and_exit_code_1(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {name: tmp_path / name for name in ("nowhere", "empty", "file", "broken", "new")}
    places["long"] = Path(300 * "a")
    places["empty"].mkdir()
    places["file"].write_text("= nothing of ours")
    places["broken"].mkdir()
    (places["broken"] / "manifest.json").write_text('{"format": 1, "kind": "hamburger-edge bundle"}')
    assert cli.main([word.format(**places) for word in words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"error: .+", err.splitlines()[-1])
    assert "Traceback" not in err
    assert not places["new"].exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "{nowhere}", "hi", "--raw", "--system", "brief"], "--raw takes the prompt as it is"),
        (["export", "tiny", "-o", "{new}", "--recipe", "{nowhere}.toml"], "nowhere.toml: cannot be read"),
        (["export", "tiny", "-o", "{new}", "--cache-slots", "100"], "cache_slots is"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "-1"], "--tokens"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--rows", "0"], "--rows"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--seed", 23 * "9"], "--seed"),
        (["segment", "{nowhere}", "--max-group-tokens", "0"], "--max-group-tokens"),
        (["segment", "{nowhere}", "--ratio", "inf"], "--ratio"),
        (["bench", "{nowhere}", "--json", "{nowhere}/x.json"], "x.json"),
        (["bench", "{nowhere}", "--plot", "{file}"], "is no folder"),
        (["eval", "{nowhere}", "--json", "{nowhere}/x.json"], "x.json"),
        (["eval", "{nowhere}", "--plot", "{file}/x"], "is no folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_numbers_and_outputs_are_named_before_anything_is_read(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("= nothing of ours")
    places = {name: tmp_path / name for name in ("nowhere", "file", "new")}
    assert cli.main([word.format(**places) for word in words]) == 1
    out, err = capsys.readouterr()
    assert (out, named in err.splitlines()[-1]) == ("", True)
    assert not places["new"].exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fly"],
        ["run"],
        ["run", "bundle", "hi", "--backend", "abacus"],
        ["run", "bundle", "hi", "--confidence"],
        ["export", "tiny"],
        ["export", "tiny", "-o", "x", "--precision", "int3"],
    ],
    ids=lambda words: " ".join(words) or "nothing",
)
def test_a_wrong_command_line_gives_one_line_and_exit_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(words)
    assert exit.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"error: .+ \(see hamburger-edge.* --help\)\n", err)


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_of_an_export_sleep_while_they_wait(
    given: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They span: an export beside a busy program, or another export, took several times as long."""
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    found: list[str | None] = []

    def take(*_: object, **__: object) -> Path:
        found.append(os.environ.get("OMP_WAIT_POLICY"))
        return tmp_path

    monkeypatch.setattr("hamburger_edge.exporting.export_checkpoint", take)
    assert cli.main(["export", "tiny", "-o", str(tmp_path / "bundle")]) == 0
    assert found == [given or "PASSIVE"]
