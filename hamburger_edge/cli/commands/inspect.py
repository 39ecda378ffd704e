"""`hamburger-edge inspect`: list the contents of a bundle."""

from __future__ import annotations

import argparse

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON, bundle_of
from hamburger_edge.cli.outputs import print_json


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.bundle.inspection import describe, show
    from hamburger_edge.bundle.licences import licences_json, licences_text

    bundle = bundle_of(options.bundle)
    if options.licences:
        if options.json:
            print_json(licences_json(bundle))
        else:
            print(licences_text(bundle))
        return
    facts = describe(bundle, cache_slots=options.cache_slots)
    if options.json:
        print_json(facts)
    else:
        print(show(facts))


COMMAND = Command(
    name="inspect",
    summary="what is in a bundle: sizes, precision, operators, memory, licences",
    options=(
        option("bundle", metavar="BUNDLE", help="folder made by `export`, or a built-in model"),
        option(
            "--cache-slots",
            type=int,
            default=4096,
            metavar="SLOTS",
            help="memory for so many slots (default 4096, or what the bundle can have)",
        ),
        option(
            "--licences",
            action="store_true",
            help="print the licences that an app with this bundle has to show: those of the model and of the "
            "installed packages that run it",
        ),
        JSON,
    ),
    examples=("hamburger-edge inspect bundle", "hamburger-edge inspect tiny --licences"),
    run=run,
)
