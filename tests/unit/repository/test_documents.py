"""Links, anchors, paths and recommended settings that documents name are right.

A document names a recommended setting in a table: as a cell `verify, 0.8 (recommended)`, or in a column
"recommended". It is the one in the model's checkpoint.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.module_imports import PROJECT, SISTERS
from helpers.places import ROOT

import hamburger_edge
from hamburger_edge import errors

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
ZOO = ROOT / "models" / "zoo"
MODELS = sorted(path.parent.name for path in ZOO.glob("*/hamburger.json"))
SETTING = r"plain(?: decoding)?|\w+, [01]\.\d+"
FENCED = re.compile(r"```\w*\n(.*?)```", re.S)

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", each.lower()).strip()) for each in headings}


@documents
def test_links_anchors_and_paths_exist(document: Path) -> None:
    """And nothing is installed from an index, where it is not."""
    text = document.read_text(encoding="utf-8")
    assert not re.search(r"pip install\s+(?:-\S+\s+)*['\"]?hamburger-edge", text)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        if not name.startswith("https://"):
            page = (document.parent / name) if name else document
            assert page.exists(), link
            assert not anchor or anchor in anchors(page), link
    if document.name == "CHANGELOG.md":  # names files of the past too
        text = re.sub(r"`[^`]+`", "", text)
    for path in PATHS.findall(" ".join([*re.findall(r"`([^`\n]+)`", text), *FENCED.findall(text)])):
        assert (ROOT / path).exists(), path


def recommended(model: str) -> str:
    found = json.loads((ZOO / model / "hamburger.json").read_text(encoding="utf-8"))["recommended"]
    mode, confidence = found["mode"], found.get("confidence", 1)
    return "plain" if mode == "plain" or confidence == 1 else f"{mode}, {confidence}"


def named(document: Path) -> Iterator[tuple[str | None, str]]:
    """Model and setting: of the card's model, else of the model that was named last."""
    card = document.parent.name if document.parent.parent == ZOO else None
    model, column = card, None
    for line in document.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" *`") for cell in line.strip("|").split("|")] if line.startswith("|") else []
        column = (cells.index("recommended") if "recommended" in cells else column) if cells else None
        mentioned = [name for name in re.findall(r"`([\w-]+)`", line) if name in MODELS]
        model = mentioned[-1] if mentioned and not card else model
        if column is not None and len(cells) > column and re.fullmatch(SETTING, cells[column]):
            yield model, cells[column]
        for setting in re.findall(rf"({SETTING}) \(recommended\)", line):
            yield model, setting.removesuffix(" decoding")


@documents
def test_documents_name_the_recommended_settings(document: Path) -> None:
    for model, setting in named(document):
        assert model is not None, setting
        assert setting == recommended(model), model


def test_contributing_lists_every_folder_of_the_code() -> None:
    rows = re.findall(r"^\| `([\w/]+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    core = {"bundle", "calls", "chat", "cli", "drafts", "loop", "structured", "support"}
    rooms = {
        path.parent.name for path in (ROOT / PROJECT).glob("*/__init__.py") if not path.parent.is_symlink()
    }
    nested = {f"{PROJECT}/{room}" for room in rooms - core}
    assert set(rows) == {PROJECT, *SISTERS, "tests", "tools", *nested}


def test_error_reference_is_current_and_complete() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "errors_reference.py"))
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert page == generator["markdown"](), "run  python docs/errors_reference.py > docs/reference/errors.md"
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert classes <= set(re.findall(r"\w+", page))


def test_site_has_no_page_without_a_source() -> None:
    """A reader of the repository sees the markup of such a page instead of its content."""
    assert not [page for page in DOCUMENTS if re.search(r"^:::", page.read_text(encoding="utf-8"), re.M)]


def test_python_reference_is_current_and_complete() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "python_reference.py"))
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert page == generator["markdown"](), "run  python docs/python_reference.py > docs/reference/python.md"
    names = {name for name in hamburger_edge.__all__ if not name.endswith(("Error", "Warning", "__"))}
    assert names == {name for names in generator["SECTIONS"].values() for name in names}


def test_each_screenshot_is_made_by_the_script() -> None:
    script = (ROOT / "docs" / "images" / "screenshots.py").read_text(encoding="utf-8")
    pictures = {path.stem for path in (ROOT / "docs" / "images").glob("serve-*.png")}
    assert pictures == set(re.findall(r'"(serve-\w+)": Screenshot', script))
