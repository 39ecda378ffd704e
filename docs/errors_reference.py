"""The page of errors as text: `python docs/errors_reference.py > docs/reference/errors.md`."""

from __future__ import annotations

import inspect
import textwrap

from hamburger_edge import errors


def markdown() -> str:
    """Return the docstrings of `hamburger_edge/errors.py`, with the tree of classes as a block."""
    first, tree, messages = inspect.cleandoc(str(errors.__doc__)).split("\n\n")
    parts = [
        "# Errors",
        "Generated from the docstrings of `hamburger_edge/errors.py` by "
        "`python docs/errors_reference.py > docs/reference/errors.md`.",
        f"{first} All names are importable from `hamburger_edge`.",
        f"```text\n{textwrap.dedent(tree)}\n```",
        messages,
        f"`HamburgerWarning`: {errors.HamburgerWarning.__doc__}",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
