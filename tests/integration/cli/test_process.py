"""The command line as a process: pipes, terminals, and how it takes interruption."""

from __future__ import annotations

import gc
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import PATIENCE

PROGRAM = "import sys; from hamburger_edge.cli.main import main; sys.exit(main())"
HOLDING = """
import select, sys
import hamburger_edge.loading as loading
from hamburger_edge.cli.main import main

def load(*words, open=loading.load, **options):
    model = open(*words, **options)
    macro, output = model.backend.macro, select.poll()
    output.register(1, 0)  # tells when its reader is gone

    def hold(*words):
        stream = model._turns.answer
        while stream.stats.macro_steps >= 8 and not (stream._cancel.is_set() or output.poll(10)):
            pass
        return macro(*words)

    model.backend.macro = hold
    return model

loading.load = load
sys.exit(main())
"""  # the same program; an answer stands still after 8 macro steps, until it is interrupted or nobody reads
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}


def start(
    *arguments: str | Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "hamburger_edge", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        env={**ENVIRONMENT, **environment},
    )


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
    shown = start("run", bundle, "hi", *options, "--mode", "merge", "--confidence", "0.4", **ascii)
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


def test_a_reader_of_progress_that_goes_away(tmp_path: Path) -> None:
    """The work is done all the same, and the exit code says so."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hamburger_edge", "export", "tiny", "-o", str(tmp_path / "bundle")]
    with open(write, "wb") as nobody:
        done = subprocess.run(
            [*command, "--precision", "int8", "--no-verify"], stdout=subprocess.PIPE, stderr=nobody,
            timeout=PATIENCE, env=ENVIRONMENT,
        )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "bundle" / "base.onnx").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_line(bundle: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "hamburger_edge", "inspect", str(bundle)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, env=ENVIRONMENT)
    assert done.returncode == 1
    assert re.fullmatch(rb"error: No space left on device: .+\n", done.stderr)


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_standard_streams(closed: int, bundle: Path) -> None:
    command = [sys.executable, "-m", "hamburger_edge", "run", str(bundle), "hi", "--max-tokens", "3"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command],
        capture_output=True, timeout=PATIENCE, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (closed != 1)


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
        words = [sys.executable, "-c", program, *map(str, arguments)]
        gc.disable()  # in the child an earlier test's model would wait for threads that are not there
        self.process, self.master = pty.fork()
        if self.process == 0:
            os.execve(words[0], words, ENVIRONMENT)
        gc.enable()
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
        PROGRAM,
        "run",
        bundle,
        "hello",
        "--show-steps",
        "--max-tokens",
        "12",
        "--mode",
        "merge",
        "--confidence",
        "0.2",
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
