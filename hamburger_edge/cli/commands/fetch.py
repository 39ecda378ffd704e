"""`hamburger-edge fetch`: download a base model into the cache folder."""

from __future__ import annotations

import argparse

from hamburger_edge.cli.command import Command, option
from hamburger_edge.support.terminal import ProgressBar


def run(options: argparse.Namespace) -> None:
    from hamburger_edge.models.bases.sources.fetch import fetch

    with ProgressBar() as progress:
        folder = fetch(
            options.name, progress=progress, verify=options.verify, accept_license=options.accept_license
        )
    print(folder)


COMMAND = Command(
    name="fetch",
    summary="bring a base model into the cache folder",
    options=(
        option(
            "name",
            metavar="NAME",
            help="smollm2-135m, gemma-3-270m, or hf:ORG/NAME[@REVISION] (needs the extra hub)",
        ),
        option(
            "--accept-license",
            metavar="LICENSE",
            help="agree to a licence that a base asks for: gemma, for https://ai.google.dev/gemma/terms",
        ),
        option("--verify", action="store_true", help="read every file again and compare its sha256"),
    ),
    examples=(
        "hamburger-edge fetch smollm2-135m",
        "hamburger-edge fetch gemma-3-270m --accept-license gemma",
        "hamburger-edge fetch hf:HuggingFaceTB/SmolLM2-360M-Instruct",
    ),
    run=run,
    notes="The cache folder is HAMBURGER_EDGE_HOME, or the platform's own.",
)
