"""The changes that `make mutation` makes to the program."""

from __future__ import annotations

import runpy

from helpers.places import ROOT

MUTANTS = runpy.run_path(str(ROOT / "tools" / "mutation" / "mutants.py"))["MUTANTS"]


def test_text_of_a_mutant_occurs_once_in_its_file() -> None:
    """Three files had moved to another folder, so `make mutation` failed at the first of them."""
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.before) == 1, f"{mutant.file}: {mutant.before}"


def test_tests_of_a_mutant_exist() -> None:
    patterns = {pattern for mutant in MUTANTS for pattern in mutant.tests.split()}
    assert not [pattern for pattern in patterns if not list((ROOT / "tests").glob(pattern))]
