"""Names of classes: each means one thing in the program."""

from __future__ import annotations

import ast
from collections import Counter

from helpers.places import ROOT

FOLDERS = ("hamburger_edge", "export", "models", "runtimes", "tools")


def test_class_name_is_defined_once() -> None:
    sources = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "node_modules" not in path.parts and not any(parent.is_symlink() for parent in path.parents)
    ]
    assert len(sources) > 100
    names = Counter(
        node.name
        for path in sources
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
