"""The page of the Python reference is what the docstrings give, and leaves no public name out."""

from __future__ import annotations

import runpy

from places import ROOT

import hamburger_edge


def test_the_page_is_current_and_has_every_public_name() -> None:
    generator = runpy.run_path(str(ROOT / "docs" / "python_reference.py"))
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert page == generator["markdown"](), "run  python docs/python_reference.py > docs/reference/python.md"
    names = {name for name in hamburger_edge.__all__ if not name.endswith(("Error", "Warning", "__"))}
    assert names == {name for names in generator["SECTIONS"].values() for name in names}
