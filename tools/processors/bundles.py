"""Bundles to answer with on other Pythons and processors, and what they say here."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hamburger_edge import export_checkpoint

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "runs" / "processors"
BUNDLES = FOLDER / "bundles"
ANSWERS = Path(__file__).with_name("answers.py")
CORE_TESTS = ("tests/unit/loop", "tests/unit/chat", "tests/unit/support")
TOOLS = ("pytest", "hypothesis", "jsonschema", "pydantic", "llguidance")  # of those tests
FORMS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "int8": {"precision": "int8"},
    "int4": {"precision": "int4"},
    "portable": {"precision": "fp32", "flavor": "portable"},
    "int8-phone": {"precision": "int8", "kv_cache_dtype": "fp32"},
    "int4-phone": {"precision": "int4", "kv_cache_dtype": "fp32"},
}
Command = list[str | Path]


def make() -> None:
    """Of `tiny` in every form, once."""
    BUNDLES.mkdir(parents=True, exist_ok=True)
    for form, options in FORMS.items():
        if not (bundle := BUNDLES / f"tiny-{form}").exists():
            export_checkpoint("tiny", bundle, verify=False, **options)
    if not _answers("here").exists():
        _run([sys.executable, ANSWERS, BUNDLES, "here"])


def _answers(name: str) -> Path:
    return BUNDLES.with_name(f"bundles.{name}.json")


def _run(command: Command, site: Path | None = None) -> bool:
    """With the checkout's own package; on one thread, which an emulator has no more of."""
    path = os.pathsep.join(str(each) for each in (site, ROOT) if each is not None)
    changes = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **changes}).returncode == 0


def passes_tests(python: Command, site: Path | None = None) -> bool:
    """The core's tests, but for those that export a bundle, with PyTorch."""
    options = ["-q", "-p", "no:cacheprovider", "-k", "not options_of_loading"]
    return _run([*python, "-m", "pytest", *options, *CORE_TESTS], site)


def answers_alike(
    python: Command, name: str, site: Path | None = None, *, refused: Collection[str] = ()
) -> bool:
    """Whether float32 says the same by that Python, also in sessions that were saved here; what share of the
    tokens others do is printed, up to the first that differs.

    Bundles of the forms `refused` must not open there.
    """
    if not _run([*python, ANSWERS, BUNDLES, name, "here"], site):
        return False
    here, there = (json.loads(_answers(each).read_text()) for each in ("here", name))
    good = True
    for bundle, facts in here.items():
        found = there[bundle]
        good &= ("refused" in found) == any(bundle.endswith(f"-{form}") for form in refused)
        if "refused" in found:
            print(f"{bundle}: refused: {found['refused']}")
            continue
        ours, theirs, resumed = facts["answers"], found["answers"], found["resumed"]
        same = sum(_prefix(a, b) for a, b in zip(ours, theirs, strict=True))
        on = (
            resumed if isinstance(resumed, str) else f"{_prefix(ours[-1], resumed)} of {len(ours[-1])} tokens"
        )
        print(f"{bundle}: {same} of {sum(map(len, ours))} tokens; a session from here: {on}")
        good &= "int" in bundle or (theirs == ours and resumed == ours[-1])
    return good


def _prefix(ours: list[int], theirs: list[int]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
