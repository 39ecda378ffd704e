"""From the commands as data to a parser, to what the runtime is given, and to docs/cli.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from hamburger_edge import __version__
from hamburger_edge.cli.commands import COMMANDS, Option
from hamburger_edge.loop.settings import Options


class _Parser(argparse.ArgumentParser):
    """Usage errors in the form of all others: one line and the way out, exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def build_parser(functions: Mapping[str, Callable[[argparse.Namespace], Any]]) -> argparse.ArgumentParser:
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
        sub.set_defaults(function=functions[command.name])
    return parser


def runtime_options(options: argparse.Namespace) -> dict[str, Any]:
    """What was given of the runtime's own options."""
    names = ("provider", "threads", "context", "kv", "gpu_layers")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def answer_options(options: argparse.Namespace, **more: Any) -> Options:
    """What was given of the answer's options."""
    given = {n: getattr(options, n) for n in Options.__annotations__ if getattr(options, n, None) is not None}
    chosen: Options = {**given, **more}  # type: ignore[typeddict-item]
    return chosen


def markdown() -> str:
    """docs/cli.md: every command as `--help` shows it."""
    parts = [
        "# The command line",
        "Made from `hamburger_edge/cli/commands.py` by `python -m hamburger_edge.cli.parser > docs/cli.md`.",
        "Every command also takes `--help` and `--debug` (shows the traceback of an error). Bad input ends "
        "with one line, `error: ...`, on standard error and exit code 1; a wrong command line with 2; "
        "Ctrl-C with 130.",
    ]
    for command in COMMANDS:
        summary = command.summary[0].upper() + command.summary[1:]
        examples = "\n".join(command.examples)
        parts += [f"## {command.name}", f"{summary}.", f"```sh\n{examples}\n```"]
        parts.append("\n".join(map(_markdown_option, command.options)))
        parts += [command.notes] if command.notes else []
    return "\n\n".join(parts) + "\n"


def _markdown_option(each: Option) -> str:
    settings = each.settings
    if not each.flags[0].startswith("-"):
        name = settings["metavar"]
        written = f"[{name}]" if settings.get("nargs") == "?" else name
    else:
        value = settings.get("metavar") or "{" + ",".join(settings.get("choices", ())) + "}"
        written = ", ".join(each.flags) + ("" if settings.get("action") == "store_true" else f" {value}")
    required = " (required)" if settings.get("required") else ""
    return f"- `{written}`: {settings['help']}{required}"


if __name__ == "__main__":
    print(markdown(), end="")
