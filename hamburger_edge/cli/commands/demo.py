"""`hamburger-edge demo`: the main job end to end, on a built-in model."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from hamburger_edge.cli.answers import GroupPainter, stats_line
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.commands._built_in import built_in_bundle
from hamburger_edge.loading import load
from hamburger_edge.support.terminal import is_terminal

PROMPTS = {
    "tiny": ("Count from 3 to 12.", "List four animals.", "What is 7 plus 8?"),
    "smollm2-135m": ("Why is the sky blue?", "Write a Python function that reverses a string."),
}


def _own_command() -> str:
    """What to type for this program where it was started, be it on the PATH or not."""
    own = Path(sys.argv[0])
    return "hamburger-edge" if own.stem != "hamburger-edge" or shutil.which("hamburger-edge") else str(own)


def run(options: argparse.Namespace) -> None:
    """Export (once), open, and answer a few prompts with the groups in view."""
    name = options.model or "smollm2-135m"
    bundle = built_in_bundle(name, options.precision)
    began = time.monotonic()
    with load(bundle) as model:
        info = model.info
        print(
            f"loaded in {time.monotonic() - began:.2f} s: {info.backend}, {info.provider}, {info.precision}"
        )
        painter = GroupPainter(is_terminal(sys.stdout))
        for prompt in PROMPTS.get(name, ("Hello!",)):
            print(f"\n> {prompt}")
            with model.stream(prompt, max_tokens=160, confidence=0.8, probabilities=False) as stream:
                for record in stream:
                    print(painter.paint(record.text, len(record.tokens)), end="", flush=True)
            print(f"\n  {stats_line(stream.stats)}")
    shades = "shaded" if is_terminal(sys.stdout) else "bracketed"
    print(f"\nEach {shades} piece came out of one step and takes one KV entry. Go on with:")
    print(f"  {_own_command()} chat {bundle} --show-steps")


COMMAND = Command(
    name="demo",
    summary="export the built-in model, check it, and let it talk",
    options=(
        option("model", nargs="?", metavar="MODEL", help="built-in model (default: smollm2-135m)"),
        option("--precision", choices=["fp32", "fp16", "int8", "int4"], help="default int4 (tiny: int8)"),
    ),
    examples=("hamburger-edge demo", "hamburger-edge demo tiny --precision fp32"),
    run=run,
)
