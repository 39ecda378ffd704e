"""Damaged files, each in a process of its own: `make fuzz N=1000 SEED=0`.

A case is right if it ends with a HamburgerError of one line and at most 500 characters, or as if nothing had
been damaged. It is a finding if it crashes, raises anything else, takes too long (of the processor's time,
which a busy machine leaves as it is, or many times that by the clock) or over twice the memory, or says
something else where a hash could have known. Findings go to `corpus.jsonl`, which is tried first every time;
a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import changes
import psutil
import targets

from hamburger_edge.errors import LONGEST, HamburgerError

WAITS = 15  # times as long by the clock
CORPUS = Path(__file__).with_name("corpus.jsonl")
Case = dict[str, Any]


def case_of(seed: int, number: int) -> Case:
    """The same for the same numbers."""
    pick = random.Random(f"{seed}/{number}")
    target = pick.choice(targets.TARGETS)
    file = pick.choice(target.files)
    sealed = target.seal is not None and pick.random() < 0.5
    drawn = changes.draw(pick, structured=file.endswith((".json", ".jsonl")))
    return {"target": target.name, "file": file, "sealed": sealed, "changes": drawn}


def attempt(case: Case | None, target: targets.Target, honest: Path, seconds: float) -> tuple[str, str, int]:
    """(how it ended, what was said, peak memory in KiB); no case: the honest files"""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(shutil.copytree(honest, Path(place) / "files"))
        if case is not None:
            path = folder / case["file"]
            path.write_bytes(changes.apply(path.read_bytes(), case["changes"]))
            if case["sealed"] and target.seal is not None:
                target.seal(folder)
        return _apart(target, folder, seconds)


def _apart(target: targets.Target, folder: Path, seconds: float) -> tuple[str, str, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(target, folder, writer)
    os.close(writer)
    said, began, process = b"", time.monotonic(), psutil.Process(child)
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            if select.select([pipe], [], [], seconds / 10)[0]:
                if not (part := pipe.read(1 << 16)):
                    break
                said += part
            elif sum(process.cpu_times()[:2]) > seconds or time.monotonic() - began > WAITS * seconds:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return f"no end after {seconds:g} s", "", 0
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}", "", usage.ru_maxrss
    ended, text = json.loads(said or b'["ended without a word", ""]')
    return ended, text, usage.ru_maxrss


def _child(target: targets.Target, folder: Path, writer: int) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        ended, text = "said", target.use(folder)
    except HamburgerError as error:
        text = str(error)
        tidy = len(text) <= LONGEST and text.isprintable()
        ended = "refused" if tidy else "a message that is long or not one line"
    except BaseException as error:
        ended, text = f"raised {type(error).__name__}", str(error)[:LONGEST]
    data = json.dumps([ended, text]).encode()
    while data:
        data = data[os.write(writer, data) :]
    os._exit(0)


def judge(
    case: Case, target: targets.Target, got: tuple[str, str, int], honest: tuple[str, str, int]
) -> str | None:
    """What is wrong, if anything."""
    ended, text, memory = got
    if ended not in ("said", "refused"):
        return f"{ended}: {text[:200]}".rstrip(": ")
    if memory > 2 * honest[2]:
        return f"{memory >> 10} MiB of memory, honest files take {honest[2] >> 10}"
    if ended == "said" and text != honest[1] and target.hashed and not case["sealed"]:
        return "said something else, which a hash could have known"
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--folder", type=Path, default=Path("runs/fuzz"))
    options = parser.parse_args()
    files, done_file = options.folder / "honest", options.folder / f"done-{options.seed}"
    options.folder.mkdir(parents=True, exist_ok=True)
    if not files.is_dir():
        print("making the honest files ...", flush=True)
        made = os.fork()  # what making them loads stays out of the processes that are measured
        if made == 0:
            targets.make(files)
            os._exit(0)
        if os.waitpid(made, 0)[1]:
            return 1
    by_name = {target.name: target for target in targets.TARGETS}
    folders = {name: files / targets.FOLDERS.get(name, name) for name in by_name}
    expected = {
        name: attempt(None, target, folders[name], 30 * options.seconds) for name, target in by_name.items()
    }
    for name, (ended, text, _) in expected.items():
        if ended != "said":
            print(f"the honest {name} files: {ended}: {text}", file=sys.stderr)
            return 1
    kept = [json.loads(line) for line in CORPUS.read_text().splitlines()] if CORPUS.exists() else []
    start = int(done_file.read_text()) if done_file.exists() else 0
    new = [(number, case_of(options.seed, number)) for number in range(start, options.cases)]
    found, counts = 0, {"said": 0, "refused": 0}
    for number, case in [*((None, case) for case in kept), *new]:
        name = case["target"]
        got = attempt(case, by_name[name], folders[name], options.seconds)
        wrong = judge(case, by_name[name], got, expected[name])
        counts[got[0]] = counts.get(got[0], 0) + 1
        if wrong is not None:
            found += 1
            print(f"{'kept' if number is None else number}: {json.dumps(case)}\n    {wrong}", flush=True)
            if number is not None:
                with open(CORPUS, "a") as corpus:
                    corpus.write(json.dumps(case) + "\n")
        if number is not None:
            done_file.write_text(str(number + 1))
    told = ", ".join(f"{count} {ended}" for ended, count in sorted(counts.items()))
    print(f"{len(kept)} kept and {len(new)} new cases: {told}; {found} findings")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
