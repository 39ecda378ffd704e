"""Cheap rules about English: what surely is a mistake in a text, each rule by its name.

A rule may find fault with a right sentence (it is only thrown away), and should not miss a wrong one.
"""

from __future__ import annotations

import re
from pathlib import Path


def _read(text: str) -> dict[str, re.Pattern[str]]:
    """The rules of grammar.txt, which says what it consists of."""
    parts: dict[str, str] = {}
    rules: dict[str, re.Pattern[str]] = {}
    for name, block in re.findall(r"^(\w.*)\n((?: .*\n)+)", text, re.MULTILINE):
        pattern = "".join(map(str.strip, block.splitlines()))
        if name.isupper():
            parts[name] = pattern
        else:
            rules[name] = re.compile(re.sub(r"\{([A-Z]+)\}", lambda found: parts[found[1]], pattern))
    return rules


RULES = _read((Path(__file__).parent / "grammar.txt").read_text("utf-8"))


def broken_rule(text: str) -> str | None:
    """The first rule that a text breaks."""
    return next((name for name, pattern in RULES.items() if pattern.search(text)), None)
