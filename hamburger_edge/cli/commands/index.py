"""`hamburger-edge index`: build a draft index from the answers of a task, for faster drafts."""

from __future__ import annotations

import argparse
from pathlib import Path

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.support.values import whole_in


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.tuning.draft_index import index_examples

    least = whole_in("--least", options.least, 2, 1 << 20)
    folder = Path(options.checkpoint)
    entries = len(index_examples(folder, Path(options.examples), least=least))
    if options.json:
        print_json({"checkpoint": str(folder), "entries": entries, "least": least})
    else:
        print(
            f"{folder}: {entries} entries, each shared by {least} or more different answers; export it again"
        )


COMMAND = Command(
    name="index",
    summary="give a checkpoint a draft index of its training answers",
    options=(
        option("checkpoint", metavar="CHECKPOINT", help="folder that `tune` or `train` wrote"),
        option("--examples", required=True, metavar="FILE", help="the examples it was tuned with"),
        option("--least", type=int, default=5, metavar="K", help="different answers per entry (default 5)"),
        JSON,
    ),
    examples=("hamburger-edge index my-checkpoint --examples commands.jsonl",),
    run=run,
    notes="`tune` makes an index by itself. Only text that at least K different answers share enters it, so\n"
    "that the content of a single answer does not leave the training data.",
    extra="export",
)
