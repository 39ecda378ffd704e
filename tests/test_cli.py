"""The command line from outside: what it prints where, its exit codes, and how it takes interruption."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hamburger_edge.cli as cli
from hamburger_edge.cli_commands import COMMANDS
from hamburger_edge.cli_options import build_parser, markdown

ROOT = Path(__file__).parents[1]
PROGRAM = "import sys; from hamburger_edge.cli import main; sys.exit(main())"
HOLDING = """
import select, sys
import hamburger_edge.loading as loading
from hamburger_edge.cli import main

def load(*words, open=loading.load, **options):
    model = open(*words, **options)
    macro, output = model.backend.macro, select.poll()
    output.register(1, 0)  # tells when its reader is gone

    def hold(*words):
        stream = model._active()
        while stream.stats.macro_steps >= 8 and not (stream._cancel.is_set() or output.poll(10)):
            pass
        return macro(*words)

    model.backend.macro = hold
    return model

loading.load = load
sys.exit(main())
"""  # the same program; an answer stands still after 8 macro steps, until it is interrupted or nobody reads
PATIENCE = 120  # seconds until a test gives up: never part of what is tested
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}
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


def start(
    *arguments: str | Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "hamburger_edge.cli", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        env={**ENVIRONMENT, **environment},
    )


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
        options = build_parser(cli._FUNCTIONS).parse_args(words[1:])
        assert options.function is cli._FUNCTIONS[command.name]


def test_every_command_has_a_function_and_the_documentation_is_current() -> None:
    assert {command.name for command in COMMANDS} == set(cli._FUNCTIONS)
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
        (["word " * 600], "slots"),
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
        ["distill", "{nowhere}", "-o", "{new}", "--tokens", "10"],
        ["distill", "{nowhere}", "-o", "{new}", "--tokens", "-1"],
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


def test_standard_input(bundle: Path) -> None:
    options = ("--json", "--max-tokens", "5", "--threads", "1")
    typed, piped = (
        start("run", bundle, "日本", *options),
        start("run", bundle, "-", *options, stdin="日本".encode()),
    )
    assert json.loads(typed.stdout)["tokens"] == json.loads(piped.stdout)["tokens"]
    for stdin, named in ((b"a\xff", b"UTF-8"), (b"", b"empty")):
        refused = start("run", bundle, "-", stdin=stdin)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert re.fullmatch(rb"error: .+\n", refused.stderr)
        assert named in refused.stderr


def test_output_that_cannot_show_a_character(bundle: Path) -> None:
    options = ("--max-tokens", "40", "--threads", "1")
    ascii = {"PYTHONIOENCODING": "ascii"}
    shown = start("run", bundle, "hi", *options, "--confidence", "0.4", **ascii)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.isascii()
    exact = start("run", bundle, "hi", *options, "--json")
    escaped = start("run", bundle, "hi", *options, "--json", **ascii)
    assert json.loads(escaped.stdout)["text"] == json.loads(exact.stdout)["text"]


def test_a_reader_that_goes_away(bundle: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", HOLDING, "run", str(bundle), "hi", "--max-tokens", "300", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    with writer:
        assert writer.stdout
        assert writer.stderr
        assert writer.stdout.read(10)
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 0


def test_chat_through_a_pipe(bundle: Path, tmp_path: Path) -> None:
    saved = tmp_path / "session"
    lines = [
        *("hello", "/stats", f"/save {saved}", "again", "/reset", f"/load {saved}", "again", "/continue"),
        *("/load", f"/load {tmp_path}/nowhere", "/help", "", "/quit", "never read"),
    ]
    stdin = "\n".join(lines).encode().replace(b"never", b"\xff")
    done = start("chat", bundle, "--max-tokens", "7", "--threads", "1", stdin=stdin)
    assert done.returncode == 0, done.stderr
    printed = re.split(
        rb"\n?\d+ tokens in .+ saved\n\d+ groups hold \d+ tokens of conversation\n|"
        rb"saved to .+\n|a new conversation\n|loaded 2 messages from .+\n",
        done.stdout,
    )
    first, _, again, _, after = printed
    assert first
    assert after.startswith(again)  # the same answer after coming back
    assert len(after.splitlines()) > len(again.splitlines())  # and it went on, and showed the commands
    assert b"/save FILE" in after
    errors = done.stderr.splitlines()
    assert [line.startswith(b"error: ") for line in errors] == [True, True]
    assert b"file name" in errors[0]
    assert b"no session" in errors[1]


def test_chat_refuses_a_turn_that_is_not_utf8_and_goes_on(bundle: Path) -> None:
    done = start("chat", bundle, "--max-tokens", "3", "--threads", "1", stdin=b"a\xffb\nhello\n")
    assert done.returncode == 0
    assert re.fullmatch(rb"error: .*UTF-8.*\n", done.stderr)
    assert done.stdout.strip()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, program: str, *arguments: str | Path) -> None:
        self.process, self.master = pty.fork()
        if self.process == 0:
            words = [sys.executable, "-c", program, *map(str, arguments)]
            os.execve(words[0], words, ENVIRONMENT)
        settings = termios.tcgetattr(self.master)
        settings[3] |= termios.NOFLSH  # else Ctrl-C throws away what was printed and not yet read
        termios.tcsetattr(self.master, termios.TCSANOW, settings)
        self.seen = b""

    def comes(self, text: bytes, *, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while text not in self.seen:
            if not select.select([self.master], [], [], max(0, end - time.monotonic()))[0]:
                return False
            self.seen += self._read()
        return True

    def wait_for(self, text: bytes) -> bytes:
        """Everything new up to and including this text."""
        assert self.comes(text, seconds=PATIENCE), f"{text!r} did not come, but {self.seen[-2000:]!r}"
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def wait_for_more(self, size: int) -> bytes:
        """At least this much more, whatever it is."""
        while len(self.seen) < size and (data := self._read()):
            self.seen += data
        taken, self.seen = self.seen, b""
        return taken

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> tuple[int, bytes]:
        """Exit code and the rest of the output."""
        while data := self._read():
            self.seen += data
        os.close(self.master)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1]), self.seen

    def _read(self) -> bytes:
        try:
            return os.read(self.master, 65536)
        except OSError:  # how a terminal whose program ended answers
            return b""


@pytest.fixture
def terminal() -> Iterator[type[Terminal]]:
    made: list[Terminal] = []

    class Watched(Terminal):
        def __init__(self, program: str, *arguments: str | Path) -> None:
            super().__init__(program, *arguments)
            made.append(self)

    yield Watched
    for each in made:
        try:
            os.kill(each.process, signal.SIGKILL)
            os.waitpid(each.process, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def test_groups_are_coloured_on_a_terminal(bundle: Path, terminal: type[Terminal]) -> None:
    run = terminal(
        PROGRAM, "run", bundle, "hello", "--show-steps", "--max-tokens", "12", "--confidence", "0.2"
    )
    code, shown = run.end()
    assert code == 0
    assert re.search(rb"\x1b\[48;5;\d+m[^\x1b]+\x1b\[0m", shown)


def test_ctrl_c_stops_the_answer_and_not_the_program(bundle: Path, terminal: type[Terminal]) -> None:
    chat = terminal(HOLDING, "chat", bundle, "--max-tokens", "300", "--confidence", "1", "--threads", "1")
    chat.wait_for(b"\n> ")
    for line in (b"hello\n", b"/continue\n"):
        chat.type(line)
        chat.wait_for(line.strip())
        chat.wait_for_more(8)  # an answer is on its way
        chat.type(b"\x03")
        chat.wait_for(b"[stopped]")
        chat.wait_for(b"\n> ")
    for _ in range(PATIENCE):  # a signal between the prompt and the read behind it is seen late
        chat.type(b"\x03")  # without an answer to stop
        if chat.comes(b"/quit", seconds=1):
            break
    chat.wait_for(b"/quit")
    chat.type(b"/stats\n")
    chat.wait_for(b"groups hold")
    chat.type(b"\x04")
    code, rest = chat.end()
    assert code == 0
    assert b"Traceback" not in rest


def test_ctrl_c_ends_a_run(bundle: Path, terminal: type[Terminal]) -> None:
    run = terminal(HOLDING, "run", bundle, "hello", "--max-tokens", "300", "--threads", "1")
    run.wait_for_more(4)
    run.type(b"\x03")
    code, rest = run.end()
    assert code == 130
    assert rest.endswith(b"interrupted\r\n")
    assert b"Traceback" not in rest
