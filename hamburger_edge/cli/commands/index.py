"""`hamburger-edge index`: build a draft index from a model's answers, for faster drafts."""

from __future__ import annotations

import argparse
from pathlib import Path

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.errors import InputError
from hamburger_edge.support.terminal import ProgressBar
from hamburger_edge.support.values import whole_in


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.tuning.indexing import Indexed, answer_prompts, index_examples

    least = whole_in("--least", options.least, 2, 1 << 20)
    folder, examples = Path(options.model), Path(options.examples)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder: make one with  hamburger-edge export MODEL -o {folder}")
    if options.prompts is not None:
        Indexed.at(folder)  # before the long part
        with ProgressBar() as progress:
            answer_prompts(
                folder,
                Path(options.prompts),
                examples,
                max_tokens=whole_in("--max-tokens", options.max_tokens, 1, 1 << 20),
                threads=options.threads,
                progress=progress,
            )
    index = index_examples(folder, examples, least, own=options.prompts is not None)
    if options.json:
        facts = {"model": str(folder), "entries": len(index), "least": least}
        print_json({**facts, "tokens_per_call": round(index.rates.tokens, 3)})
        return
    print(f"{folder}: {len(index)} entries, each shared by {least} or more different answers")
    print(f"With them alone a call of the base generates {index.rates.tokens:.2f} tokens.")


COMMAND = Command(
    name="index",
    summary="give a model a draft index of its answers: free drafts, the same texts",
    options=(
        option("model", metavar="MODEL", help="bundle, or checkpoint that `tune` or `train` wrote"),
        option(
            "--examples",
            required=True,
            metavar="FILE",
            help="the examples it was tuned with; with --prompts the file of its own answers",
        ),
        option(
            "--prompts",
            metavar="FILE.jsonl",
            help="let the model answer these first, into --examples; continues there",
        ),
        option(
            "--max-tokens", type=int, default=256, metavar="N", help="most tokens of an answer (default 256)"
        ),
        option("--threads", type=int, metavar="N", help="processor threads"),
        option("--least", type=int, default=5, metavar="K", help="different answers per entry (default 5)"),
        JSON,
    ),
    examples=(
        "hamburger-edge index my-checkpoint --examples commands.jsonl",
        "hamburger-edge index chat-bundle --prompts questions.jsonl --examples answers.jsonl --least 2",
    ),
    run=run,
    notes="`tune` makes an index by itself. Only text that at least K different answers share enters it, so\n"
    "that the content of a single answer does not leave the training data. A chat model has no examples:\n"
    "with --prompts it learns what usually follows in its own answers, without training and PyTorch.\n"
    "A checkpoint takes effect in its next export, a bundle at its next start.",
    extra="export",
)
