"""The command-line reference in Markdown: every command, then the shared options once."""

from __future__ import annotations

from collections import Counter

from hamburger_edge.cli.command import Option
from hamburger_edge.cli.parser import COMMANDS

SHARED = "Shared options"


def markdown() -> str:
    parts = [
        "# The command line",
        "Generated from `hamburger_edge/cli/commands` by "
        "`python -m hamburger_edge.cli.reference > docs/reference/command-line.md`.",
        "Every command also takes `--help`, `--help-all` where it has rarely needed options, and `--debug` "
        "(shows the traceback of an error). Bad input ends "
        "with one line, `error: ...`, on standard error and exit code 1; a wrong command line with 2; an "
        "answer of `run` below `--min-certainty` with 3; "
        "Ctrl-C with 130.",
    ]
    shared = _shared()
    for command in COMMANDS:
        summary = command.summary[0].upper() + command.summary[1:]
        examples = "\n".join(command.examples)
        parts += [f"## {command.name}", f"{summary}.", f"```sh\n{examples}\n```"]
        options = [_markdown_option(entry) for entry in command.options]
        parts.append("\n".join(line for line in options if line not in shared))
        if names := [
            _name(entry) for entry, line in zip(command.options, options, strict=True) if line in shared
        ]:
            parts.append(f"[{SHARED}](#{SHARED.lower().replace(' ', '-')}): {', '.join(names)}.")
        parts += [command.notes] if command.notes else []
    return "\n\n".join([*parts, f"## {SHARED}", "\n".join(shared)]) + "\n"


def _shared() -> list[str]:
    """Return the lines of options that occur in two or more commands, the first line of each name."""
    options = [entry for command in COMMANDS for entry in command.options if entry.flags[0].startswith("-")]
    count = Counter(map(_markdown_option, options))
    shared: dict[str, str] = {}
    for entry in options:
        if count[line := _markdown_option(entry)] > 1:
            shared.setdefault(entry.flags[-1], line)
    return list(shared.values())


def _name(entry: Option) -> str:
    return f"`{entry.flags[-1]}`"


def _markdown_option(entry: Option) -> str:
    settings = entry.settings
    name = settings.get("metavar") or "{" + ",".join(settings.get("choices", ())) + "}"
    written = {"?": f"[{name}]", "*": f"[{name} ...]"}.get(settings.get("nargs", ""), name)
    if entry.flags[0].startswith("-"):
        switch = settings.get("action") in ("store_true", "store_false")
        written = ", ".join(entry.flags) + ("" if switch else f" {written}")
    required = " (required)" if settings.get("required") else ""
    return f"- `{written}`: {settings['help']}{required}"


if __name__ == "__main__":  # python -m hamburger_edge.cli.reference > docs/reference/command-line.md
    print(markdown(), end="")
