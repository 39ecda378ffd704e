"""Command lines: their help and documentation, and wrong ones, which say so in one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT

import hamburger_edge.cli.main as cli
from hamburger_edge.cli.parser import COMMANDS, build_parser
from hamburger_edge.cli.reference import markdown
from hamburger_edge.models.checkpoints.built_in import ZOO


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_examples_of_the_help_parse(command, capsys) -> None:  # type: ignore[no-untyped-def]
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
    [run] = [command for command in COMMANDS if command.name == "run"]
    assert all(each.flags[0] in everything for each in run.options[2:])
    for heading in ("use:\n  demo", "make:\n  export", "check:\n  verify", "research:\n  distill"):
        assert heading in shown("--help")


def test_every_command_is_registered_and_the_documentation_is_current() -> None:
    modules = {path.stem for path in (ROOT / "hamburger_edge/cli/commands").glob("[!_]*.py")}
    assert [command.name for command in COMMANDS if command.name not in modules] == []
    assert len(COMMANDS) == len(modules)
    assert (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8") == markdown()


def test_json_is_a_flag_in_every_command() -> None:
    settings = [each.settings for command in COMMANDS for each in command.options if "--json" in each.flags]
    assert len(settings) > 5
    assert all(each == settings[0] for each in settings)
    assert settings[0]["action"] == "store_true"


BAD_INPUT = [  # arguments, and words of the error's line
    (["run", "{nowhere}", "hi"], "no such"),
    (["run", "{empty}", "hi"], "neither"),
    (["run", "{file}", "hi"], "file: a file, not a folder"),
    (["run", "tinny", "hi"], "did you mean tiny?"),
    (["run", "voicecommands", "hi"], "did you mean voice-commands?"),
    (["inspect", "tinny"], "did you mean tiny?"),
    (["verify", "tinny"], "did you mean tiny?"),
    (["verify", "{nowhere}", "--backend", "onnx"], "--backend is for --against"),
    (["eval", "tinny"], "did you mean tiny?"),
    (["eval", "tinny", "--recommend"], "did you mean tiny?"),
    (["bench", "tinny"], "did you mean tiny?"),
    (["serve", "tinny", "--port", "0"], "did you mean tiny?"),
    (["export", "tinny", "-o", "{new}"], "did you mean tiny?"),
    (["demo", "tinny"], "did you mean tiny?"),
    (["run", "{broken}", "hi"], "format version 1"),
    (["run", "{long}", "hi"], ""),
    (["run", "{nowhere}", "hi", "--raw", "--system", "brief"], "--raw takes the prompt as it is"),
    (["chat", "{nowhere}"], "nowhere"),
    (["verify", "{nowhere}"], "nowhere"),
    (["inspect", "{nowhere}"], "nowhere"),
    (["inspect", "{broken}"], "broken"),
    (["export", "{nowhere}", "-o", "{new}"], "nowhere: there is no such folder"),
    (["export", "{broken}", "-o", "{new}"], "broken"),
    (["export", "tiny", "-o", "{new}", "--cache-slots", "100"], "cache_slots is"),
    (["fetch", "no-such-model"], "no-such-model"),
    (["cache", "--clear", "no-such-entry"], "is not in the cache folder"),
    (["demo", "no-such-model"], "no-such-model"),
    (["demo", "{empty}"], "empty"),
    (["distill", "{nowhere}", "-o", "{new}", "--tokens", "10"], "nowhere"),
    (["distill", "tiny", "-o", "{new}", "--tokens", "-1"], "--tokens"),
    (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--rows", "0"], "--rows"),
    (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--seed", 23 * "9"], "--seed"),
    (["segment", "{nowhere}"], "nowhere"),
    (["segment", "{nowhere}", "--max-group-tokens", "0"], "--max-group-tokens"),
    (["segment", "{nowhere}", "--ratio", "inf"], "--ratio"),
    (["train", "{nowhere}", "-o", "{new}"], "nowhere"),
    (["train", "{file}", "-o", "{new}"], "file"),
    (["bench"], "give either a BUNDLE or  --shape NAME"),
    (["bench", "{nowhere}"], "no such folder"),
    (["bench", "--shape", "pizza"], "--shape pizza: unknown (known: llama-3.2-1b, tiny)"),
    (["bench", "{nowhere}", "--against", "tiny"], "--against is for other programs: add  --peers"),
    (["bench", "{nowhere}", "--report", "{nowhere}/x.json"], "x.json"),
    (["bench", "{nowhere}", "--plot", "{file}"], "is no folder"),
    (["bench", "b", "--json-schema", "{{}}"], "--json-schema is of whole requests: give  --prompts"),
    (["bench", "--prompts", "p", "--shape", "tiny"], "--shape does not go with  --prompts"),
    (["bench", "b", "--prompts", "{nowhere}"], "nowhere: cannot be read"),
    (["bench", "b", "--conversation"], "--conversation is of whole requests: give  --prompts"),
    (["bench", "b", "--prompts", "p", "--conversation", "--peers"], "--peers does not go with"),
    (["bench", "b", "--prompts", "{prompts}", "--confidence", "2"], "--confidence: a setting is a mode"),
    (["eval", "{nowhere}", "--report", "{nowhere}/x.json"], "x.json: no file can be written there"),
    (["eval", "{tiny}", "--reference", "nothing-of-that-name"], "no built-in model of that name"),
    (["eval", "{tiny}", "--confidence", "0.5,1.5"], "confidence must be from 0 to 1"),
    (["eval", "{tiny}", "--max-tokens", "0"], "max_tokens must be"),
    (["eval", "{tiny}", "--max-tokens", "5000", "--threads", "1"], "no prompt fits"),
    (["serve", "{nowhere}", "--port", "0"], "no such folder"),
    (["serve", "{nowhere}", "--port", "0", "--workers", "0"], "--workers"),
    (["serve", "{nowhere}", "--port", "0", "--timeout", "0"], "--timeout"),
    (["serve", "{nowhere}", "--host", "no.such.host.invalid", "--no-auth"], "cannot listen"),
    (["serve", "{nowhere}", "--port", "0", "--api-key-file", "{nowhere}"], "--api-key-file"),
    (["serve", "tiny", "--port", "0", "--browser", "{nowhere}"], "lacks packages: run  npm install"),
]


@pytest.mark.parametrize(
    ("words", "named"), BAD_INPUT, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_gives_one_line_and_exit_code_1(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {name: tmp_path / name for name in ("nowhere", "empty", "file", "broken", "prompts", "new")}
    places |= {"long": Path(300 * "a"), "tiny": ZOO / "tiny"}
    places["empty"].mkdir()
    places["file"].write_text("= nothing of ours")
    places["prompts"].write_text('{"prompt": "a"}')
    places["broken"].mkdir()
    (places["broken"] / "manifest.json").write_text('{"format": 1, "kind": "hamburger-edge bundle"}')
    assert cli.main([word.format(**places) for word in words]) == 1
    out, err = capsys.readouterr()
    *before, line = err.splitlines()
    assert out == ""
    assert line.startswith("error: ")
    assert named in line
    assert not [each for each in before if each.startswith(("error: ", "Traceback"))]
    assert not places["new"].exists()


def test_verify_checks_hashes_without_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a built-in model too. It names what it did not check, and how to check that."""
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["inspect", "tiny"]) == 0
    assert cli.main(["verify", "tiny", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["ok"], found["parity"]) == (True, None)
    assert cli.main(["verify", "tiny"]) == 0
    out, err = capsys.readouterr()
    assert (f"tiny: the hashes of {found['files']} files are right\n" in out, err) == (True, "")
    assert "not compared with its checkpoint: run  hamburger-edge verify tiny --against tiny" in out
    [weights] = (tmp_path / "bundles").glob("*/weights.bin")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert cli.main(["verify", "tiny", "--against", "tiny"]) == 1
    assert "its content differs from the manifest's sha256" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *("", "fly", "run bundle hi --backend abacus", "export tiny -o x --precision int3"),
        *("chat bundle --json {}", "run bundle hi --max 3"),  # no option is abbreviated
        "eval bundle --json quality.json",
    ],
)
def test_wrong_command_line_gives_one_line_and_exit_code_2(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(words.split())
    assert exit.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"error: .+ \(see hamburger-edge.* --help\)\n", err)


def test_export_threads_sleep_while_they_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They span: an export beside a busy program, or another export, took several times as long."""
    found: dict[str, str] = {}

    def take(*_: object, **__: object) -> Path:
        found.update(os.environ)
        return tmp_path

    monkeypatch.setattr("hamburger_edge.exporting.export_checkpoint", take)
    monkeypatch.setenv("OMP_WAIT_POLICY", "")  # restored when the test ends
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert cli.main(["export", "tiny", "-o", str(tmp_path / "bundle")]) == 0
    assert (found["OMP_WAIT_POLICY"], found["GOMP_SPINCOUNT"]) == ("PASSIVE", "7")
