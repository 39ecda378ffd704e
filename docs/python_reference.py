"""The Python reference as text: `python docs/python_reference.py > docs/reference/python.md`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import hamburger_edge

# Heading -> public names, with the members of a class that an application uses; none: its fields.
SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "Opening a bundle": {"load": ()},
    "Models": {
        "Model": (
            *("info", "encode", "decode", "stream", "generate", "astream", "agenerate", "call", "chat"),
            *("resume", "cancel", "close"),
        ),
        "Options": (),
        "Stream": ("result", "complete", "cancel", "close"),
        "Chunk": (),
        "TopToken": (),
        "Result": (),
        "Stats": (),
    },
    "Conversations": {
        "Chat": ("send", "asend", "continue_answer", "configure", "reset", "save"),
        "ChatTemplate": ("preset", "first_turn", "next_turn"),
    },
    "Calls": {"tools_of": (), "answer_template": (), "Catalogue": (), "Call": ()},
    "Exporting": {"export_checkpoint": ()},
}


def markdown() -> str:
    parts = [
        "# Python",
        "Generated from the docstrings by `python docs/python_reference.py > docs/reference/python.md`.",
        "All names are importable from `hamburger_edge`. [The guide](../guide/python.md) shows their use; "
        "[errors](errors.md) have a page of their own.",
    ]
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}")
        for name, members in names.items():
            found = getattr(hamburger_edge, name)
            parts.append(f"### {name}")
            if inspect.isfunction(found):
                parts += _callable(found)
                continue
            parts += [inspect.cleandoc(found.__doc__)] if _has_text(found) else []
            if not members:
                parts.append(_fenced(_fields(found)))
            shown: dict[str, str] = {}  # parameters -> the first member that has them
            for member in members:
                described = _callable(inspect.getattr_static(found, member))
                before, _, rest = described[0].partition("(\n")
                parameters, end, after = rest.partition("\n)")
                if end and shown.setdefault(parameters, member) != member:
                    described[0] = f"{before}(...){after}"
                    described.insert(1, f"The parameters are those of `{shown[parameters]}`.")
                parts += [f"#### {name}.{member}", *described]
    return "\n\n".join(parts) + "\n"


def _callable(found: Any) -> list[str]:
    """Signature and docstring of a function, method or property."""
    function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    source = textwrap.dedent(inspect.getsource(function))
    [node] = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    lines = source.splitlines()[node.lineno - 1 : node.body[0].lineno - 1]
    kept = [line for line in lines if line.strip() not in ("self,", "cls,")]
    signature = "\n".join(kept).rstrip(":")
    for first in ("self", "cls"):
        signature = signature.replace(f"({first}, ", "(").replace(f"({first})", "()")
    if isinstance(found, property):
        signature = signature.removeprefix("def ").replace("()", "", 1)
    return [_fenced(signature), *([_described(function)] if function.__doc__ else [])]


def _described(function: Any) -> str:
    """The docstring, with blocks that are indented in it."""
    margin = "    " * (function.__qualname__.count(".") + 1)
    lines = [line.removeprefix(margin) for line in function.__doc__.splitlines()]
    return "\n".join(lines).strip()


def _fields(found: Any) -> str:
    """The fields of a class with their comments, up to its first method."""
    lines = inspect.getsource(found).splitlines()
    methods = [n for n, line in enumerate(lines) if n and line.startswith(("    def ", "    @"))]
    lines = lines[: methods[0]] if methods else lines
    start = next(n for n, line in enumerate(lines) if line.startswith("class ")) + 1
    body = textwrap.dedent("\n".join(lines[start:])).strip()
    if body.startswith('"""'):
        body = body[body.index('"""', 3) + 3 :].strip()
    return body


def _has_text(found: Any) -> bool:
    return bool(found.__doc__) and not found.__doc__.startswith(f"{found.__name__}(")


def _fenced(code: str) -> str:
    return f"```py\n{code}\n```"


if __name__ == "__main__":
    print(markdown(), end="")
