"""`hamburger-edge verify`: compare a bundle with its checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.support.processors import let_threads_sleep
from hamburger_edge.support.terminal import ProgressBar


def run(options: argparse.Namespace) -> None:
    let_threads_sleep()
    from hamburger_edge.export.parity.gate import verify

    with ProgressBar() as progress:
        report = verify(
            Path(options.bundle), against=options.against, backend=options.backend, progress=progress
        )
    if options.json:
        print_json(report.to_json())
    else:
        print(report)


COMMAND = Command(
    name="verify",
    summary="compare a bundle with its checkpoint again",
    options=(
        option("bundle", metavar="BUNDLE", help="folder made by `export`"),
        option(
            "--against",
            metavar="CHECKPOINT",
            help="checkpoint (default: of the name it was made from, built in or here)",
        ),
        option(
            "--backend",
            default="auto",
            choices=["auto", "onnx", "llamacpp"],
            help="the files to verify (default: the graphs, if it has any)",
        ),
        JSON,
    ),
    examples=("hamburger-edge verify bundle", "hamburger-edge verify bundle --against my-checkpoint --json"),
    run=run,
)
