"""`hamburger-edge demo`: the main job end to end, on a built-in model."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import time
from pathlib import Path

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.cli.answers import GroupPainter, stats_line
from hamburger_edge.cli.command import Command, option
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.loading import load
from hamburger_edge.support.terminal import ProgressBar, is_terminal

PROMPTS = {
    "tiny": ("Count from 3 to 12.", "List four animals.", "What is 7 plus 8?"),
    "smollm2-135m": ("Why is the sky blue?", "Write a Python function that reverses a string."),
}


def _readable(bundle: Path) -> bool:
    """Whole, and of a format that this program reads."""
    try:
        check_files(bundle, load_manifest(bundle))
    except BundleError:
        return False
    return True


def _stamped(stamp: Path) -> str | None:
    try:
        return stamp.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _own_command() -> str:
    """What to type for this program where it was started, be it on the PATH or not."""
    own = Path(sys.argv[0])
    return "hamburger-edge" if own.stem != "hamburger-edge" or shutil.which("hamburger-edge") else str(own)


def run(options: argparse.Namespace) -> None:
    """Export (once), open, and answer a few prompts with the groups in view."""
    from hamburger_edge import __version__
    from hamburger_edge.exporting import export_checkpoint
    from hamburger_edge.models.checkpoints.built_in import NAMES
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint, resolve
    from hamburger_edge.support.cache import cache_folder

    def weights_digest(folder: Path) -> str:
        files = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".safetensors")]
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    name, precision = options.model or "smollm2-135m", options.precision
    if name not in NAMES:
        raise InputError(
            f"{name!r} is not built in ({', '.join(NAMES)} are): for a checkpoint of your own  "
            f"hamburger-edge export {name} -o bundle"
        )
    precision = precision or ("int8" if name == "tiny" else "int4")  # narrow layers suffer most from int4
    bundle = cache_folder() / "bundles" / f"{name}-{precision}"
    stamp = bundle.with_name(f"{bundle.name}.stamp")  # which checkpoint and version the bundle was made by
    identity = f"{__version__} {weights_digest(resolve(name))}"
    readable = _readable(bundle)
    if _stamped(stamp) != identity or not readable:
        print(f"exporting {name} at {precision} to {bundle}")
        with ProgressBar() as progress:
            checkpoint = load_checkpoint(name, progress=progress)
            if not readable:  # damaged; what is in this folder is ours
                shutil.rmtree(bundle, ignore_errors=True)
            export_checkpoint(checkpoint, bundle, precision=precision, force=True, progress=progress)
        stamp.write_text(identity, encoding="utf-8")
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
