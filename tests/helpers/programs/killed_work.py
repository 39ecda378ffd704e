"""Kill work of `long_work.py` at random moments. Incomplete output never looks complete. The last run
finishes, and its output equals that of an undisturbed run.

    python killed_work.py WORK KILLS SEED FOLDER
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from helpers.long_work import WORKS, check, files

FINISHED_BY_CHANCE = 1.1  # of the time that all of it takes, in which the kill comes


def in_a_fork(work: str, given: Path, made: Path, seconds: float | None = None) -> int:
    """How it ended: killed after so many seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            WORKS[work].run(given, made)
            code = 0
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def main(work: str, kills: int, seed: str, folder: Path) -> None:
    torch.set_num_threads(1)
    given, whole, made = (folder / each for each in ("given", "whole", "made"))
    for each in (given, whole, made):
        each.mkdir(parents=True)
    WORKS[work].prepare(given)
    began = time.monotonic()
    assert in_a_fork(work, given, whole) == 0, "the work fails by itself"
    seconds = time.monotonic() - began
    chance = random.Random(f"{work}/{seed}")
    killed = 0
    while killed < kills:
        ended = in_a_fork(work, given, made, chance.random() * seconds * FINISHED_BY_CHANCE)
        assert ended in (0, signal.SIGKILL), "what a kill left ends the next run"
        check(given, made)
        killed += ended == signal.SIGKILL
        if ended == 0:  # and begins anew
            shutil.rmtree(made)
            made.mkdir()
    assert in_a_fork(work, given, made) == 0, "what a kill left cannot be gone on with"
    check(given, made)
    expected, found = files(whole), files(made)
    differ = [path for path in expected if found.get(path) != expected[path]]
    assert not differ, f"{', '.join(differ)} is not what an unbroken run makes"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
