"""A hook of the site: links to files of the repository that are no pages become their paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """[a card](../../models/zoo/tiny/README.md) -> a card (`models/zoo/tiny/README.md`)"""

    def as_path(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        file = (ROOT / "docs" / page.file.src_uri).parent.joinpath(target).resolve()
        if file.is_relative_to(ROOT / "docs") or not file.exists():
            return link[0]  # a page, or a broken link, which the strict build reports
        path = file.relative_to(ROOT).as_posix()
        return f"`{path}`" if text == path or path.startswith(text) else f"{text} (`{path}`)"

    return LINK.sub(as_path, markdown)
