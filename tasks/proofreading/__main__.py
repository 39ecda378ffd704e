"""`python -m hamburger_edge.tasks.proofreading OUT`: examples for proofreading."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from hamburger_edge.tasks.proofreading.examples import ProofreadingSettings, make_examples


def main(arguments: Sequence[str] | None = None) -> None:
    defaults = ProofreadingSettings()
    parser = argparse.ArgumentParser(
        prog="python -m hamburger_edge.tasks.proofreading",
        description="Clean English that a base writes, with mistakes put into it: train.jsonl and dev.jsonl.",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for the files; goes on there")
    parser.add_argument(
        "--sentences",
        type=int,
        default=defaults.sentences,
        metavar="N",
        help="clean texts (%(default)s)",
    )
    parser.add_argument(
        "--examples", type=int, default=defaults.examples, metavar="N", help="at most (%(default)s)"
    )
    parser.add_argument("--base", default=defaults.base, metavar="BASE", help="default %(default)s")
    parser.add_argument("--seed", type=int, default=defaults.seed, metavar="N", help="default %(default)s")
    parser.add_argument("--threads", type=int, metavar="N", help="processor threads")
    options = parser.parse_args(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    began = time.monotonic()

    def report(stage: str, done: int, total: int, note: str = "", /) -> None:
        minutes = (time.monotonic() - began) / 60
        print(f"{stage}: {done} of {total} ({note}, {minutes:.0f} min)", flush=True)

    settings = ProofreadingSettings(
        sentences=options.sentences, examples=options.examples, base=options.base, seed=options.seed
    )
    print(make_examples(settings, options.out, report))


if __name__ == "__main__":
    main()
