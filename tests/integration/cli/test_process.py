"""The command line as a process: pipes, terminals and Ctrl-C."""

from __future__ import annotations

import gc
import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.places import PATIENCE
from helpers.toys.toy_bundles import ONE_LAYER, saved_toy

from hamburger_edge.cli.main import main

PROGRAM = "import sys; from hamburger_edge.cli.main import main; sys.exit(main())"
HOLDING = """
import select, sys
import hamburger_edge.loading as loading
from hamburger_edge.cli.main import main

def load(*words, open=loading.load, **options):
    model = open(*words, **options)
    macro, output = model.backend.macro, select.poll()
    output.register(1, 0)  # reports a closed pipe

    def hold(*words):
        stream = model.inference.turns.answer
        while stream.stats.macro_steps >= 8 and not (stream._cancel.is_set() or output.poll(10)):
            pass
        return macro(*words)

    model.backend.macro = hold
    return model

loading.load = load
sys.exit(main())
"""  # the same program, which waits after 8 macro steps for Ctrl-C or a closed pipe
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}


Start = Callable[..., tuple[int, bytes, bytes]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Run a command in this process, with pipes: exit code, standard output, standard error."""

    def call(*arguments: str | Path, stdin: bytes = b"", encoding: str = "utf-8") -> tuple[int, bytes, bytes]:
        out, err = io.BytesIO(), io.BytesIO()
        with monkeypatch.context() as patched:
            for name, pipe in (("stdin", io.BytesIO(stdin)), ("stdout", out), ("stderr", err)):
                patched.setattr(sys, name, io.TextIOWrapper(pipe, encoding, write_through=name != "stdin"))
            code = main([*map(str, arguments), "--threads", "1"])
            return code, out.getvalue(), err.getvalue()

    return call


def test_prompt_is_read_from_standard_input(start: Start, bundle: Path) -> None:
    options = ("--json", "--max-tokens", "5")
    _, typed, _ = start("run", bundle, "日本", *options)
    _, piped, _ = start("run", bundle, "-", *options, stdin="日本".encode())
    assert json.loads(typed)["tokens"] == json.loads(piped)["tokens"]
    for stdin, word in ((b"a\xff", b"UTF-8"), (b"", b"empty")):
        code, out, err = start("run", bundle, "-", stdin=stdin)
        assert (code, out) == (1, b"")
        assert re.fullmatch(rb"error: .+\n", err)
        assert word in err


def test_characters_beyond_the_output_encoding_are_escaped(start: Start, bundle: Path) -> None:
    command = ("run", bundle, "hi", "--max-tokens", "40")
    code, shown, err = start(*command, "--mode", "merge", "--confidence", "0.4", encoding="ascii")
    assert (code, err) == (0, b"the answer was cut after 40 tokens: allow more with  --max-tokens\n")
    assert shown.isascii()
    _, exact, _ = start(*command, "--json")
    _, escaped, _ = start(*command, "--json", encoding="ascii")
    assert json.loads(escaped)["text"] == json.loads(exact)["text"]


def test_closed_output_pipe_ends_the_run_silently(bundle: Path) -> None:
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


@pytest.mark.slow
def test_export_finishes_after_its_error_pipe_closes(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    checkpoint = saved_toy(tmp_path / "checkpoint", **ONE_LAYER)
    command = [sys.executable, "-m", "hamburger_edge", "export", checkpoint, "-o", tmp_path / "bundle"]
    with open(write, "wb") as closed_pipe:
        done = subprocess.run(
            [*command, "--precision", "int8", "--no-verify"], stdout=subprocess.PIPE, stderr=closed_pipe,
            timeout=PATIENCE, env=ENVIRONMENT,
        )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "bundle" / "base.onnx").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_full_disk_is_an_error_of_one_line(bundle: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "hamburger_edge", "inspect", str(bundle)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, env=ENVIRONMENT)
    assert done.returncode == 1
    assert re.fullmatch(rb"error: No space left on device: .+\n", done.stderr)


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_run_works_with_a_closed_standard_stream(closed: int, bundle: Path) -> None:
    command = [sys.executable, "-m", "hamburger_edge", "run", str(bundle), "hi", "--max-tokens", "3"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command],
        capture_output=True, timeout=PATIENCE, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    cut = b"the answer was cut after 3 tokens: allow more with  --max-tokens\n"
    assert (done.returncode, done.stderr) == (0, b"" if closed == 2 else cut)
    assert bool(done.stdout) == (closed != 1)


def test_run_leaves_no_telemetry_in_the_home_folder(bundle: Path, tmp_path: Path) -> None:
    """ONNX Runtime 1.32 stored a number of the device there, and events to send."""
    command = [sys.executable, "-m", "hamburger_edge", "run", str(bundle), "hi", "--max-tokens", "3"]
    names = ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    home = {key: value for key, value in ENVIRONMENT.items() if key not in names} | {"HOME": str(tmp_path)}
    subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE, env=home)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_chat_reads_commands_from_a_pipe(start: Start, bundle: Path, tmp_path: Path) -> None:
    saved = tmp_path / "session"
    lines = [
        *("hello", "/stats", f"/save {saved}", "again", "/reset", f"/load {saved}", "again", "/continue"),
        *("\udcff", "/load", f"/load {tmp_path}/nowhere", "/help", "", "/quit", "never read"),
    ]
    stdin = "\n".join(lines).encode(errors="surrogateescape")
    code, out, err = start("chat", bundle, "--max-tokens", "7", stdin=stdin)
    assert code == 0, err
    printed = re.split(
        rb"\n?\d+ tokens in .+ MiB.*\n\d+ groups hold \d+ tokens of conversation\n|"
        rb"saved to .+\n|a new conversation\n|loaded 2 messages from .+\n",
        out,
    )
    first, _, again, _, resumed = printed
    assert first
    assert resumed.startswith(again)  # the loaded session gives the same answer
    assert len(resumed.splitlines()) > len(again.splitlines())  # then /continue and /help
    assert b"/save FILE" in resumed
    lines = err.splitlines()
    errors = [line for line in lines if line.startswith(b"error: ")]
    cut = b"the answer was cut after 7 tokens: allow more with  --max-tokens, or go on with  /continue"
    assert lines.count(cut) == len(lines) - len(errors) > 0
    for line, word in zip(errors, (b"UTF-8", b"file name", b"no session"), strict=True):
        assert word in line


class Terminal:
    """A program on a new pseudo-terminal."""

    def __init__(self, program: str, *arguments: str | Path) -> None:
        words = [sys.executable, "-c", program, *map(str, arguments)]
        gc.disable()  # the child lacks the threads that an earlier test's model would join
        self.process, self.master = pty.fork()
        if self.process == 0:
            os.execve(words[0], words, ENVIRONMENT)
        gc.enable()
        settings = termios.tcgetattr(self.master)
        settings[3] |= termios.NOFLSH  # else Ctrl-C discards unread output
        termios.tcsetattr(self.master, termios.TCSANOW, settings)

    def read(self) -> bytes:
        try:
            return os.read(self.master, 65536)
        except OSError:  # the program has ended
            return b""

    def end(self) -> tuple[int, bytes]:
        """Return the exit code and the rest of the output."""
        output = b"".join(iter(self.read, b""))
        os.close(self.master)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1]), output


def test_terminal_shows_groups_in_colour(bundle: Path) -> None:
    options = ("--show-steps", "--max-tokens", "12", "--mode", "merge", "--confidence", "0.2")
    code, shown = Terminal(PROGRAM, "run", bundle, "hello", *options).end()
    assert code == 0
    assert re.search(rb"\x1b\[48;5;\d+m[^\x1b]+\x1b\[0m", shown)


def test_ctrl_c_ends_the_run_with_code_130(bundle: Path) -> None:
    run = Terminal(HOLDING, "run", bundle, "hello", "--max-tokens", "300", "--threads", "1")
    assert run.read()  # the answer has begun
    os.write(run.master, b"\x03")
    code, rest = run.end()
    assert code == 130
    assert rest.endswith(b"interrupted\r\n")
    assert b"Traceback" not in rest
