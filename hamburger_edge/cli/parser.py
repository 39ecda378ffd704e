"""The parser, made from the commands."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from hamburger_edge import __version__
from hamburger_edge.cli.commands import (
    bench,
    chat,
    demo,
    distill,
    eval,
    export,
    fetch,
    inspect,
    run,
    segment,
    serve,
    train,
    tune,
    verify,
)

# In the order in which people meet them.
COMMANDS = tuple(
    module.COMMAND
    for module in (
        demo,
        export,
        run,
        chat,
        serve,
        verify,
        inspect,
        eval,
        bench,
        fetch,
        tune,
        distill,
        segment,
        train,
    )
)


class _Parser(argparse.ArgumentParser):
    """Usage errors in the form of all others: one line and the way out, exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hamburger-edge",
        description="Language models that say several tokens a step and keep them in one KV-cache entry.",
    )
    parser.add_argument("--version", action="version", version=f"hamburger-edge {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        examples = "\n".join(f"  {example}" for example in command.examples)
        notes = f"{command.notes}\n\n" if command.notes else ""
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog=f"{notes}examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for each in command.options:
            sub.add_argument(*each.flags, **each.settings)
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
        sub.set_defaults(command=command)
    return parser
