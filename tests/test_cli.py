"""The command line from outside: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import hamburger_edge.cli.main as cli
from hamburger_edge.cli.parser import COMMANDS, build_parser
from hamburger_edge.cli.reference import markdown

ROOT = Path(__file__).parents[1]
JSON_KEYS = {"text", "tokens", "groups", "stats"}
STATS_KEYS = {
    *("tokens", "macro_steps", "tokens_per_step", "slots", "kv_bytes", "kv_bytes_uncompressed"),
    *("ttft_s", "decode_tps", "provider", "precision"),
}


@pytest.fixture
def run(bundle: Path, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """`run` with the toy bundle, in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["run", str(bundle), *arguments, "--threads", "1"])
        return code, *capsys.readouterr()

    return call


# Help and documentation


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


def test_every_command_is_registered_and_the_documentation_is_current() -> None:
    modules = {path.stem for path in (ROOT / "hamburger_edge/cli/commands").glob("[!_]*.py")}
    assert [command.name for command in COMMANDS if command.name not in modules] == []
    assert len(COMMANDS) == len(modules)
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == markdown()


# Bad input


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["hi", "--confidence", "2"], "confidence"),
        (["hi", "--confidence", "nan"], "confidence"),
        (["hi", "--max-tokens", "-1"], "max_tokens"),
        (["hi", "--max-tokens", "0"], "max_tokens"),
        (["hi", "--temperature", "-1"], "temperature"),
        (["hi", "--top-k", "-3"], "top_k"),
        (["hi", "--top-p", "0"], "top_p"),
        (["hi", "--min-p", "7"], "min_p"),
        (["hi", "--repetition-penalty", "0"], "repetition_penalty"),
        (["hi", "--seed", "-1"], "seed"),
        (["hi", "--stop", ""], "stop"),
        (["hi", "--context", "0"], "context"),
        (["hi", "--context", "3"], "slots"),
        (["hi", "--provider", "abacus"], "abacus"),
        (["hi", "--backend", "torch"], "torch"),
        (["hi", "--system", "\udcff"], "UTF-8"),
        (["\udcff"], "UTF-8"),
        ([""], "empty"),
        (["word " * 600], "positions"),
    ],
)
def test_bad_values_give_one_line_and_exit_code_1(run, arguments: list[str], named: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"error: .+\n", err)
    assert named in err


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
        ["export", "tiny", "-o", "{new}", "--precision", "int3"],
        ["export", "tiny", "-o", "{new}", "--format", "gguf", "--precision", "q3_k"],
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
        (["export", "tiny", "-o", "{new}", "--gguf-precision", "q8_0"], "gguf_precision"),
        (["export", "tiny", "-o", "{new}", "--context", "100"], "context is"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "-1"], "--tokens"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--rows", "0"], "--rows"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--given", "1.5"], "--given"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--threads", "-1"], "--threads"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--seed", "-1"], "--seed"),
        (["distill", "tiny", "-o", "{new}", "--tokens", "10", "--seed", 23 * "9"], "--seed"),
        (["segment", "{nowhere}", "--max-steps", "0"], "--max-steps"),
        (["segment", "{nowhere}", "--low", "nan"], "--low"),
        (["segment", "{nowhere}", "--ratio", "inf"], "--ratio"),
        (["train", "{file}", "-o", "{new}", "--threads", "-1"], "--threads"),
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
        ["run", "bundle"],
        ["run", "bundle", "hi", "--backend", "abacus"],
        ["run", "bundle", "hi", "--max-tokens", "many"],
        ["run", "bundle", "hi", "--confidence"],
        ["chat", "bundle", "--json"],
        ["export", "tiny"],
        ["export", "tiny", "-o", "x", "--flavor", "sour"],
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


def test_debug_shows_the_traceback(run) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run("hi", "--confidence", "2", "--debug")
    assert code == 1
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: confidence")


# Answers


def test_json_has_exactly_these_keys(run) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("hello", "--json", "--max-tokens", "30", "--confidence", "0.4", "--show-steps")
    assert (code, err) == (0, "")
    [line] = out.splitlines()
    answer = json.loads(line)
    assert set(answer) == JSON_KEYS
    assert set(answer["stats"]) == STATS_KEYS
    assert answer["tokens"] == [token for group in answer["groups"] for token in group]
    assert len(answer["tokens"]) == answer["stats"]["tokens"] == 30
    assert len(answer["groups"]) == answer["stats"]["macro_steps"] < 30
    assert answer["stats"]["tokens_per_step"] == pytest.approx(30 / len(answer["groups"]))
    assert answer["stats"]["kv_bytes"] < answer["stats"]["kv_bytes_uncompressed"]
    assert (answer["stats"]["provider"], answer["stats"]["precision"]) == ("cpu", "fp32")
    plain = run("hello", "--max-tokens", "30", "--confidence", "0.4")
    assert plain == (0, answer["text"] + "\n", "")


def said(run, *arguments: str) -> dict:  # type: ignore[no-untyped-def, type-arg]
    code, out, _ = run(*arguments, "--json", "--max-tokens", "24")
    assert code == 0
    return json.loads(out)  # type: ignore[no-any-return]


def test_seed_raw_stop_system_and_mode(run) -> None:  # type: ignore[no-untyped-def]
    def sampled(seed: str) -> list[int]:
        return said(run, "hello", "--temperature", "1.5", "--seed", seed)["tokens"]  # type: ignore[no-any-return]

    assert sampled("1") == sampled("1") != sampled("2")
    plain = said(run, "hello", "--confidence", "1")
    assert plain["stats"]["tokens_per_step"] == 1
    assert said(run, "hello", "--mode", "verify")["tokens"] == plain["tokens"]
    written = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert said(run, written, "--raw", "--confidence", "1")["tokens"] == plain["tokens"]
    assert said(run, "hello", "--raw", "--confidence", "1")["tokens"] != plain["tokens"]
    assert said(run, "hello", "--system", "be kind", "--confidence", "1")["tokens"] != plain["tokens"]
    letter = next(letter for letter in plain["text"][1:] if letter.isprintable())
    stopped = said(run, "hello", "--confidence", "1", "--stop", letter, "--stop", "never said")
    assert stopped["text"] == plain["text"].split(letter)[0]


def test_brackets_and_statistics_without_a_terminal(run) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("hello", "--show-steps", "--max-tokens", "12", "--confidence", "0.2")
    assert code == 0
    assert "[" in out
    assert "\x1b" not in out
    assert re.fullmatch(r"12 tokens in \d+ steps .* saved\n", err)


# As a program of its own
