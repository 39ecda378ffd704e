"""The argument parser, built from the commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from hamburger_edge.cli.command import Command
from hamburger_edge.cli.commands import (
    bench,
    cache,
    chat,
    demo,
    distill,
    eval,
    export,
    fetch,
    index,
    inspect,
    run,
    segment,
    serve,
    train,
    tune,
    verify,
)
from hamburger_edge.support.version import package_version

# Commands by purpose, in the order of `--help`.
GROUPS = {
    "use": (demo, run, chat, serve),
    "make": (export, tune, index, fetch, cache),
    "check": (verify, inspect, eval, bench),
    "research": (distill, segment, train),
}
COMMANDS = tuple(module.COMMAND for modules in GROUPS.values() for module in modules)


class _Parser(argparse.ArgumentParser):
    """A parser of whole option names, whose usage errors are one line with a remedy, and exit code 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


class _CommandParser(_Parser):
    """The parser of one command, which gets its options when the command is chosen."""

    def __init__(self, *, command: Command, rare: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.command, self.rare, self.complete = command, rare, False

    def parse_known_args(self, *words: Any, **settings: Any) -> Any:
        if not self.complete:
            self.complete = True
            self._add_options()
        return super().parse_known_args(*words, **settings)

    def _add_options(self) -> None:
        for option in self.command.options:
            hidden = {"help": argparse.SUPPRESS} if option.rare and not self.rare else {}
            self.add_argument(*option.flags, **{**option.settings, **hidden})
        if _hides(self.command):
            self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show the other options, too")
        debug = "show the traceback of an error" if self.rare else argparse.SUPPRESS
        self.add_argument("--debug", action="store_true", help=debug)
        self.set_defaults(command=self.command)


class _Version(argparse.Action):
    """The action of --version, which looks the version up."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(f"{parser.prog} {package_version()}")
        raise SystemExit(0)


class _HelpAll(argparse.Action):
    """The action of --help-all: --help with the rare options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        build_parser(rare=True).parse_args([parser.prog.split()[-1], "--help"])
        raise SystemExit(0)


def build_parser(*, rare: bool = False) -> argparse.ArgumentParser:
    """Build the parser; with `rare`, the help also lists the rare options."""
    parser = _Parser(
        prog="hamburger-edge",
        description="Run language models that generate several tokens per step, in one KV-cache entry.",
        epilog="\n\n".join(f"{name}:\n{_listed(modules)}" for name, modules in GROUPS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version_help = "show program's version number and exit"
    parser.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help=version_help)
    commands = parser.add_subparsers(
        metavar="COMMAND", required=True, help="one of the commands below", parser_class=_CommandParser
    )
    for command in COMMANDS:
        examples = "\n".join(f"  {example}" for example in command.examples)
        notes = f"{command.notes}\n\n" if command.notes else ""
        commands.add_parser(
            command.name,
            command=command,
            rare=rare,
            description=command.summary,
            epilog=f"{notes}examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            usage=None if rare or not _hides(command) else f"%(prog)s {_arguments(command)} [options]",
        )
    return parser


def _hides(command: Command) -> bool:
    return any(option.rare for option in command.options)


def _arguments(command: Command) -> str:
    return " ".join(option.settings["metavar"] for option in command.options if option.flags[0][0] != "-")


def _listed(modules: Sequence[Any]) -> str:
    return "\n".join(f"  {module.COMMAND.name:<9} {module.COMMAND.summary}" for module in modules)
