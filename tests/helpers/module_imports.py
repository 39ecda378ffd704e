"""The modules of the project and their imports of each other, read from their source."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

from helpers.places import ROOT

PROJECT = "hamburger_edge"
# Folders beside hamburger_edge/ in the repository; inside it when installed.
SISTERS = ("export", "models", "runtimes")

# Run from the checkout alone; in no wheel.
BENCHMARKS = ROOT / PROJECT / "benchmarks"
CHECKOUT = (BENCHMARKS / "peers", BENCHMARKS / "requests", ROOT / "models" / "zoo")


@functools.cache
def modules() -> dict[str, Path]:
    """Name -> file."""
    found = {}
    for folder in (PROJECT, *SISTERS):
        parts = (PROJECT,) if folder == PROJECT else (PROJECT, folder)
        for path in sorted((ROOT / folder).rglob("*.py")):
            names = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([*parts, *names]).removesuffix(".__init__")] = path
    return found


@functools.cache
def imports(module: str, *, top_level: bool = False) -> frozenset[str]:
    """Return the project's modules that one module imports.

    By default these include imports in functions, for type checking only, and by full name in a string.
    `top_level`: only those that run when the module is imported.
    """
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    return frozenset(name for name in _imported(tree, top_level) if name in modules() and name != module)


def _imported(node: ast.AST, top_level: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import():
                yield from (alias.name for alias in child.names)
            case ast.ImportFrom():
                assert not child.level, "modules are imported by their full names"
                inside = [f"{child.module}.{alias.name}" for alias in child.names]
                yield from (name if name in modules() else str(child.module) for name in inside)
            case ast.Constant(value=str(text)) if "." in text and not top_level:
                yield text
            case ast.FunctionDef() | ast.AsyncFunctionDef() if top_level:
                continue
            case ast.If(test=ast.Name("TYPE_CHECKING")) if top_level:
                continue
        yield from _imported(child, top_level)


def circles() -> list[list[str]]:
    """Modules that import each other, directly or by way of others: the first circle, where there is one."""
    try:
        graphlib.TopologicalSorter({module: imports(module) for module in modules()}).prepare()
    except graphlib.CycleError as error:
        return [error.args[1]]
    return []
