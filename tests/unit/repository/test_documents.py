"""Links, anchors and paths that documents name exist, and nothing is installed from an index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT

DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted((ROOT / "models" / "zoo").glob("*/README.md")),
    ROOT / "runtimes" / "javascript" / "README.md",
]
PATHS = re.compile(
    r"\b(?:hamburger_edge|export|runtimes|models|evaluation|tuning|benchmarks|integrations|serve|tests|docs|examples)/[\w./-]*\w/?"
)
FENCED = re.compile(r"```\w*\n(.*?)```", re.S)

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", each.lower()).strip()) for each in headings}


@documents
def test_links_and_their_anchors_exist(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        if not name.startswith("https://"):
            page = (document.parent / name) if name else document
            assert page.exists(), link
            assert not anchor or anchor in anchors(page), link


@documents
def test_paths_in_code_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    if document.name == "CHANGELOG.md":  # names files of the past too
        text = re.sub(r"`[^`]+`", "", text)
    for path in PATHS.findall(" ".join([*re.findall(r"`([^`\n]+)`", text), *FENCED.findall(text)])):
        assert (ROOT / path).exists(), path


@documents
def test_nothing_is_installed_from_an_index(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert not re.search(r"pip install\s+(?:-\S+\s+)*['\"]?hamburger-edge", text)
