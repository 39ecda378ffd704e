"""Bundles to answer with on other Pythons and processors, and what they say here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
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


def make(folder: Path, models: list[str]) -> Path:
    """Of every model in every form, once."""
    for model in models:
        for form, options in FORMS.items():
            if not (bundle := folder / f"{model}-{form}").exists():
                from hamburger_edge import export_checkpoint

                folder.mkdir(parents=True, exist_ok=True)
                export_checkpoint(model, bundle, verify=False, **options)
    if not folder.with_name(f"{folder.name}.here.json").exists():
        answer([sys.executable], folder, "here", {})
    return folder


def environment(site: Path | None = None) -> dict[str, str]:
    """The checkout's own package; on one thread, which an emulator has no more of."""
    path = os.pathsep.join(str(each) for each in (site, ROOT) if each is not None)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def answer(python: Command, folder: Path, name: str, env: dict[str, str]) -> bool:
    """By that Python, which also goes on with the sessions that were saved here."""
    there = [] if name == "here" else ["here"]
    command = [*python, ANSWERS, folder, name, *there]
    return subprocess.run(command, cwd=ROOT, env=env or environment()).returncode == 0


def test(python: Command, env: dict[str, str]) -> bool:
    command = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE_TESTS]
    command += ["-k", "not options_of_loading"]  # which exports a bundle first, with PyTorch
    return subprocess.run(command, cwd=ROOT, env=env).returncode == 0


def compare(
    folder: Path, name: str, tell: Callable[[str], object] = print, *, refused: Collection[str] = ()
) -> bool:
    """Whether float32 says the same; what share of the tokens others do, up to the first that differs.

    Bundles of the forms `refused` must not open there.
    """
    import json

    here, there = (
        json.loads(folder.with_name(f"{folder.name}.{each}.json").read_text()) for each in ("here", name)
    )
    good = True
    for bundle, facts in here.items():
        is_refused = "refused" in there[bundle]
        good &= is_refused == any(bundle.endswith(f"-{form}") for form in refused)
        if is_refused:
            tell(f"{bundle}: refused: {there[bundle]['refused']}")
            continue
        ours, theirs = facts["answers"], there[bundle]["answers"]
        same = sum(_prefix(a, b) for a, b in zip(ours, theirs, strict=True))
        whole = sum(map(len, ours))
        exact = "int" not in bundle
        resumed = there[bundle]["resumed"]
        said = (
            resumed if isinstance(resumed, str) else f"{_prefix(ours[-1], resumed)} of {len(ours[-1])} tokens"
        )
        tell(f"{bundle}: {same} of {whole} tokens; a session from here: {said}")
        good &= not exact or (same == whole and resumed == ours[-1])
    return good


def _prefix(ours: list[int], theirs: list[int]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
