"""`hamburger-edge segment`: segmentation of text into groups by entropy."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.errors import HamburgerError
from hamburger_edge.support.terminal import is_terminal
from hamburger_edge.support.values import number_in, whole_in


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.models.bases.loading import find_base
    from hamburger_edge.models.training.data.batches import DistilledData
    from hamburger_edge.models.training.data.segment_report import RULES, render
    from hamburger_edge.models.training.data.segment_report import report as cut
    from hamburger_edge.models.training.data.segmentation import EntropyRule

    steps = whole_in("--max-group-tokens", options.max_group_tokens, 1, 64)
    for name, value in (("--low", options.low), ("--ratio", options.ratio)):
        if value is not None:
            number_in(name, value, 0, sys.float_info.max)
    data = DistilledData.load(Path(options.data))
    given = options.low is not None or options.ratio is not None
    rules = (EntropyRule(options.low or 0.0, options.ratio or 0.0),) if given else RULES
    try:
        base, _ = find_base(str(data.source.get("base")))
        decode = None if base.tokenizer is None else Tokenizer(base.tokenizer).decode
    except HamburgerError:  # without the base there is no text to show
        decode = None
    facts = cut(data, rules, max_group_tokens=steps, decode=decode, sample=options.sample)
    if options.json:
        print_json(facts.to_json())
    else:
        print(render(facts, colour=is_terminal(sys.stdout)))


COMMAND = Command(
    name="segment",
    summary="how the base's entropies cut text into groups (the paper's rule)",
    options=(
        option("data", metavar="DATA", help="folder made by `distill`"),
        option(
            "--low",
            type=float,
            metavar="NATS",
            help="below this a token always joins (default: three rules)",
        ),
        option("--ratio", type=float, metavar="R", help="... or below R times its group's highest"),
        option("--max-group-tokens", type=int, default=4, metavar="N", help="most tokens of a group"),
        option("--sample", type=int, default=0, metavar="N", help="answer to show, cut (default 0)"),
        JSON,
    ),
    examples=("hamburger-edge segment data", "hamburger-edge segment data --low 0.5 --ratio 0.7"),
    run=run,
    extra="train",
)
