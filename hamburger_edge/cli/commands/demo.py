"""`hamburger-edge demo`: built-in models from bundle to answers."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from hamburger_edge.cli.answers import MARK, GroupPainter, stats_line
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.commands._built_in import built_in_bundle
from hamburger_edge.errors import printable
from hamburger_edge.loading import load
from hamburger_edge.model import Model
from hamburger_edge.support.terminal import is_terminal

PROMPTS = {
    "voice-commands": (
        "Play some jazz by Miles Davis from the fifties",
        "book a table for four at an italian place in Boston tomorrow evening",
    ),
    "proofread": (
        "We had a long wait at the airport, but the flihgt was fine and there hotel is lovely.",
        "can you come to the meeting tomorow, I want to show you the new plan for the garden",
    ),
    "home-commands": (
        "could somebody kill the lights in the kitchen",
        "put oat milk on my shopping list and start a timer for 12 minutes",
    ),
    "smollm2-135m": ("Why is the sky blue?", "Write a Python function that reverses a string."),
    "tiny": ("Count from 3 to 12.", "List four animals.", "What is 7 plus 8?"),
}
SHOWN = ("voice-commands", "proofread")  # models of a demo without a name

NEXT = {
    "chat smollm2-135m --show-steps": "talk",
    "serve voice-commands": "OpenAI's interface; first  pip install '.[serve]'",
    "export voice-commands -o bundle --precision int4": "smaller; first  pip install '.[export]'",
}
MOST = 160  # max_tokens of an answer


def _own_command() -> str:
    """Return the command that starts this program: its path if the script is not on the PATH."""
    own = Path(sys.argv[0])
    return "hamburger-edge" if own.stem != "hamburger-edge" or shutil.which("hamburger-edge") else str(own)


def run(options: argparse.Namespace) -> None:
    """Make the bundles, answer a few prompts with marked groups, and print the time of plain decoding."""
    names = (options.model,) if options.model else SHOWN
    bundles = [built_in_bundle(name, options.precision) for name in names]
    painter = GroupPainter(is_terminal(sys.stdout))
    for name, bundle in zip(names, bundles, strict=True):
        began = time.monotonic()
        with load(bundle) as model:
            info, seconds = model.info, time.monotonic() - began
            print(
                f"\n{name}, loaded in {seconds:.2f} s: {info.backend}, {info.provider}, {info.precision}, "
                f"asked at {info.recommended}"
            )
            for prompt in PROMPTS.get(name, ("Hello!",)):
                _answer(model, prompt, painter)
    pieces = "shaded piece" if painter.colour else f"piece between {MARK}"
    print(f"\nEach {pieces} came out of one step. Go on with:")
    for words, meaning in NEXT.items():
        print(f"  {f'{_own_command()} {words}':<64} # {meaning}")


def _answer(model: Model, prompt: str, painter: GroupPainter) -> None:
    """Answer in plain mode without output, then in the recommended mode.

    The second answer finds memory and caches warm, as the first does after an earlier prompt.
    """
    plain = model.generate(prompt, max_tokens=MOST, mode="plain", reuse_prefix=False)
    print(f"\n> {prompt}")
    with model.stream(prompt, max_tokens=MOST, reuse_prefix=False) as stream:
        for chunk in stream:
            print(painter.paint(chunk.text, len(chunk.tokens)), end="", flush=True)
    if line := painter.line():
        print(f"\n  {printable(line)}", end="")
    ours, theirs = (answer.stats.ttft_s + answer.stats.decode_s for answer in (stream, plain))
    print(f"\n  {stats_line(stream.stats)}")
    print(f"  {1e3 * ours:.0f} ms; decoding plainly, {plain.stats.tokens} tokens take {1e3 * theirs:.0f} ms")


COMMAND = Command(
    name="demo",
    summary="make two built-in models, and let them answer",
    options=(
        option(
            "model", nargs="?", metavar="MODEL", help="built-in model (default: voice-commands, proofread)"
        ),
        option(
            "--precision", choices=["fp32", "fp16", "int8", "int4"], help="default int8; others need PyTorch"
        ),
    ),
    examples=("hamburger-edge demo", "hamburger-edge demo tiny --precision fp32"),
    run=run,
)
