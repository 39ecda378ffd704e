"""`hamburger-edge verify`: check a bundle's hashes, and compare it with its checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hamburger_edge.bundle.files import check_files
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON, bundle_of
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.errors import InputError
from hamburger_edge.support.processors import let_threads_sleep
from hamburger_edge.support.terminal import ProgressBar

if TYPE_CHECKING:
    from hamburger_edge.export.parity.gate import ParityReport


def run(options: argparse.Namespace) -> None:
    if options.against is None and options.backend != "auto":
        raise InputError("--backend is for --against: add that, or leave it out")
    folder = bundle_of(options.bundle)
    manifest = load_manifest(folder)
    check_files(folder, manifest, hashes=True)
    files = len(manifest.files)
    if not options.json:
        print(f"{options.bundle}: the hashes of {files} files are right", flush=True)
    report = None if options.against is None else _compare(folder, options)
    if options.json:
        print_json({"ok": True, "files": files, "parity": report and report.to_json()})
    elif report is not None:
        print(report)
    else:
        print(
            "not compared with its checkpoint: run  "
            f"hamburger-edge verify {options.bundle} --against {manifest.graft.name}  (needs PyTorch)"
        )


def _compare(folder: Path, options: argparse.Namespace) -> ParityReport:
    let_threads_sleep()
    from hamburger_edge.export.parity.gate import verify

    with ProgressBar() as progress:
        return verify(folder, against=options.against, backend=options.backend, progress=progress)


COMMAND = Command(
    name="verify",
    summary="check a bundle's hashes, and with --against compare it with its checkpoint",
    options=(
        option("bundle", metavar="BUNDLE", help="folder made by `export`, or a built-in model"),
        option(
            "--against",
            metavar="CHECKPOINT",
            help="also run the parity gate against this checkpoint, which needs PyTorch",
        ),
        option(
            "--backend",
            default="auto",
            choices=["auto", "onnx", "llamacpp"],
            help="with --against: the files to compare (default: the graphs, if it has any)",
        ),
        JSON,
    ),
    examples=("hamburger-edge verify bundle", "hamburger-edge verify bundle --against my-checkpoint --json"),
    run=run,
)
