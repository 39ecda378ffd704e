"""Do the tests notice? `make mutation` runs them against each change of `mutants.py`, in a copy of the
checkout.

A mutant is killed when a test fails. The tests that its line in `mutants.py` names run first, and have to
pass without it; a mutant that survives them meets all tests of `make test`. Results are a line a mutant;
a run that was stopped continues.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SECONDS = 7200  # of a processor, that all tests may take


def copy_to(folder: Path) -> None:
    """Copy the files that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    packages = "runtimes/javascript/node_modules"
    if (ROOT / packages).is_dir():
        (folder / packages).symlink_to((ROOT / packages).resolve())


def run(copy: Path, tests: str, seconds: int = SECONDS) -> str | None:
    """Run tests: patterns of files below tests/, or all where there is none. Return the first that failed."""
    files = [path for pattern in tests.split() for path in (copy / "tests").glob(pattern)]
    files = files or [copy / "tests"]
    path = os.pathsep.join(filter(None, [str(copy), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "first"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    done = subprocess.run(
        [*command, *files],
        cwd=copy,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
    )
    if done.returncode < 0:
        return f"ended by {signal.Signals(-done.returncode).name}"
    if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE):
        return failed[1]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return None


@functools.cache
def enough(copy: Path, tests: str) -> int:
    """Return the seconds of a processor after which these tests of a mutant that never ends are ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert (by := run(copy, tests)) is None, f"{by} fails without any change"
    return 60 + round(3 * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before))


def attempt(mutant: Mutant, copy: Path) -> str | None:
    """Return the test that kills the mutant."""
    seconds = enough(copy, mutant.tests)
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1, f"{mutant.file}: {mutant.before!r} is not there once"
    path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    try:
        return run(copy, mutant.tests, seconds) or run(copy, "")
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutation.txt")
    parser.add_argument("--only", default="", help="mutants of files whose name has this in it")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    done = options.results.read_text() if options.results.exists() else ""
    with tempfile.TemporaryDirectory(prefix="mutation-") as place, open(options.results, "a") as results:
        copy_to(Path(place))
        for mutant in MUTANTS:
            change = json.dumps([mutant.file, mutant.before, mutant.after])
            if change in done or options.only not in mutant.file:
                continue
            by = attempt(mutant, Path(place))
            told = f"killed   {change} by {by}" if by else f"SURVIVED {change}"
            print(told, flush=True)
            print(told, file=results, flush=True)
    survived = options.results.read_text().count("SURVIVED")
    print(f"{survived} mutants survived")
    return survived > 0


if __name__ == "__main__":
    sys.exit(main())
