"""`hamburger-edge cache`: list and clear the cache folder."""

from __future__ import annotations

import argparse

from hamburger_edge.cli.command import Command, option
from hamburger_edge.cli.options import JSON
from hamburger_edge.cli.outputs import print_json
from hamburger_edge.support.cache import cache_entries, cache_folder, clear_cache
from hamburger_edge.support.tables import table

ALL = ""  # --clear without a name


def run(options: argparse.Namespace) -> None:
    clearing = options.clear is not None
    entries = clear_cache(options.clear or None) if clearing else cache_entries()
    total = sum(entry.bytes for entry in entries)
    folder = str(cache_folder())
    if options.json:
        listed = [entry._asdict() for entry in entries]
        print_json({"folder": folder, "cleared": clearing, "entries": listed, "bytes": total})
        return
    print(f"cleared from {folder}:" if clearing else f"{folder}:")
    rows = [*((entry.name, _megabytes(entry.bytes)) for entry in entries), ("total", _megabytes(total))]
    print(table(rows))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


COMMAND = Command(
    name="cache",
    summary="list and clear the cache folder: fetched bases, bundles made at their first use",
    options=(
        option(
            "--clear",
            nargs="?",
            const=ALL,
            metavar="NAME",
            help="delete this entry, or all entries of a kind (bundles); without a name, all entries",
        ),
        JSON,
    ),
    examples=(
        "hamburger-edge cache",
        "hamburger-edge cache --clear bundles",
        "hamburger-edge cache --clear bases/smollm2-135m --json",
    ),
    run=run,
    notes="The next use fetches or makes again what was cleared. The cache folder is HAMBURGER_EDGE_HOME, or "
    "the platform's own.",
)
