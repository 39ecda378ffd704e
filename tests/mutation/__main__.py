"""Do the tests notice? `make mutation` runs them against each change of `mutants.py`, in a copy of the
checkout.

A mutant is killed when a test fails. The tests that its line in `mutants.py` names run first; a mutant that
survives them meets every test that imports the changed module, itself or by a helper of tests/support (or a
module that imports it, where none does); with --whole also the others of `make test`. The unchanged program
has to pass first. Results are one line of JSON a mutant; a run that was stopped continues.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
ROOMS = ("hamburger_edge", "export", "serve")  # where the mutants are


def copy_of(checkout: Path, tests: Path, folder: Path) -> Path:
    """Files that git lists, as hard links; tests may come from another checkout."""
    for source, parts in ((checkout, ["."]), (tests, ["tests"])):
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *parts],
            cwd=source, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (name.startswith("tests/")) == (parts == ["tests"]) and os.path.lexists(source / name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, folder / name, follow_symlinks=False)
    for packages in ("runtimes/javascript/node_modules",):
        if (checkout / packages).is_dir():
            (folder / packages).symlink_to((checkout / packages).resolve())
    return folder


class Suite:
    """Tests in a copy, and which of them import what."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self.helpers = {path.stem: path for path in (copy / "tests" / "support").rglob("*.py")}

    def named(self, mutant: Mutant) -> list[str]:
        found = [path for name in mutant.tests.split() for path in (self.copy / "tests").glob(name)]
        return [str(path.relative_to(self.copy)) for path in found]

    def of(self, module: str) -> list[str]:
        """Test files that import the module, or one that does where none does; unit tests first."""
        modules = {module}
        while True:
            tests = (self.copy / "tests").rglob("test_*.py")
            if found := [path for path in tests if modules & self.imports(path)]:
                return sorted((str(path.relative_to(self.copy)) for path in found), reverse=True)
            program = [path for room in ROOMS for path in (self.copy / room).rglob("*.py")]
            more = {module_of(str(p.relative_to(self.copy))) for p in program if modules & self.imports(p)}
            assert more - modules, f"nothing imports {module}"
            modules |= more

    @functools.cache  # noqa: B019
    def imports(self, path: Path) -> frozenset[str]:
        return frozenset(self._imported(path))

    def _imported(self, path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                yield name
                if (helper := self.helpers.get(name)) and helper != path:
                    yield from self.imports(helper)

    def run(self, files: list[str], seconds: int = 3600) -> tuple[bool, str]:
        """Whether all passed, and the first that did not; mutants that would never end are ended."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

        path = os.pathsep.join([str(self.copy), *filter(None, [os.environ.get("PYTHONPATH")])])
        options = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "first"}
        environment = {**os.environ, **options}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
        done = subprocess.run(
            [*command, *files],
            cwd=self.copy, env=environment, capture_output=True, text=True, preexec_fn=limit,
        )  # fmt: skip
        if done.returncode < 0:
            return False, f"ended by {signal.Signals(-done.returncode).name}"
        if done.returncode not in (0, 1):  # a collection that fails is a failure as well
            assert "error" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        return done.returncode == 0, failed[1] if failed else ""


def module_of(file: str) -> str:
    name = file.removesuffix(".py").replace("/", ".")
    return name if name.startswith("hamburger_edge.") else f"hamburger_edge.{name}"


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def attempt(mutant: Mutant, suite: Suite, usual: float, *, whole: bool) -> tuple[bool, str]:
    path = suite.copy / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1, f"{mutant.file}: {mutant.before!r} is not there once"
    path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    try:
        passed, by = suite.run(suite.named(mutant), 60 + round(3 * usual))
        for tests in (suite.of(module_of(mutant.file)), ["tests"] if whole else []):
            if passed and tests:
                passed, by = suite.run(tests)
        return not passed, by
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=Path, default=ROOT, help="the checkout whose tests run")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutation.jsonl")
    parser.add_argument("--whole", action="store_true", help="the other tests, too, where a mutant survives")
    parser.add_argument("--only", default="", help="mutants of files whose name has this in it")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = {tuple(found["mutant"]): found for found in map(json.loads, lines)}
    with tempfile.TemporaryDirectory(prefix="mutation-") as place:
        suite = Suite(copy_of(ROOT, options.tests.resolve(), Path(place)))
        usual: dict[str, float] = {}  # seconds that the named tests take without any change
        for mutant in MUTANTS:
            if mutant[:3] in done or options.only not in mutant.file:
                continue
            if mutant.tests not in usual:
                before = processor_seconds()
                passed, by = suite.run(suite.named(mutant))
                assert passed, f"{by} fails without any change"
                usual[mutant.tests] = processor_seconds() - before
            killed, by = attempt(mutant, suite, usual[mutant.tests], whole=options.whole)
            print("killed  " if killed else "SURVIVED", f"{mutant.file}: {mutant.before}", by, flush=True)
            found = {"mutant": mutant[:3], "killed": killed, "by": by}
            done[mutant[:3]] = found
            with open(options.results, "a") as file:
                file.write(json.dumps(found) + "\n")
    killed_ones = [done[mutant[:3]]["killed"] for mutant in MUTANTS if mutant[:3] in done]
    print(f"{sum(killed_ones)} of {len(killed_ones)} mutants killed")
    return 0 if all(killed_ones) else 1


if __name__ == "__main__":
    sys.exit(main())
