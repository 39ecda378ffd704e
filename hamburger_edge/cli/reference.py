"""The reference of the command line: every command as `--help` shows it, in Markdown."""

from __future__ import annotations

from hamburger_edge.cli.command import Option
from hamburger_edge.cli.parser import COMMANDS


def markdown() -> str:
    parts = [
        "# The command line",
        "Made from `hamburger_edge/cli/commands` by "
        "`python -m hamburger_edge.cli.reference > docs/reference/command-line.md`.",
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
        written = {"?": f"[{name}]", "*": f"[{name} ...]"}.get(settings.get("nargs", ""), name)
    else:
        value = settings.get("metavar") or "{" + ",".join(settings.get("choices", ())) + "}"
        switch = settings.get("action") in ("store_true", "store_false")
        written = ", ".join(each.flags) + ("" if switch else f" {value}")
    required = " (required)" if settings.get("required") else ""
    return f"- `{written}`: {settings['help']}{required}"


if __name__ == "__main__":  # python -m hamburger_edge.cli.reference > docs/reference/command-line.md
    print(markdown(), end="")
