"""Work that is killed at random moments: `make kills KILLS=100`. Never may it leave what looks finished and
is not; at the end it is let finish, and what comes of it is what comes of work that nobody killed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from long_work import WORKS, files

FINISHED_BY_CHANCE = 1.1  # of the time that all of it takes, in which the kill comes


def in_a_fork(work: str, given: Path, made: Path) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            WORKS[work].run(given, made)
            code = 0
        finally:
            os._exit(code)
    return child


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=WORKS, action="append")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/kills"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.work or WORKS:
        folder = options.folder.absolute() / name  # of which a checkpoint tells the end alone
        shutil.rmtree(folder, ignore_errors=True)
        given, whole, made = (folder / each for each in ("given", "whole", "made"))
        for each in (given, whole, made):
            each.mkdir(parents=True)
        WORKS[name].given(given)
        began = time.monotonic()
        if os.waitpid(in_a_fork(name, given, whole), 0)[1]:
            return 1
        seconds = time.monotonic() - began
        chance = random.Random(f"{name}/{options.seed}")
        killed = 0
        while killed < options.kills:
            child = in_a_fork(name, given, made)
            time.sleep(chance.random() * seconds * FINISHED_BY_CHANCE)
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)[1]
            killed += ended == signal.SIGKILL
            if ended not in (0, signal.SIGKILL):
                print(f"{name}: what a kill left ends the next run")
                return 1
            WORKS[name].check(made)
            if ended == 0:  # and begins anew
                shutil.rmtree(made)
                made.mkdir()
        if os.waitpid(in_a_fork(name, given, made), 0)[1]:
            print(f"{name}: what a kill left cannot be gone on with")
            return 1
        WORKS[name].check(made)
        if differ := [path for path, digest in files(whole).items() if files(made).get(path) != digest]:
            print(f"{name}: {', '.join(differ)} is not what an unbroken run makes")
            return 1
        print(
            f"{name}: {killed} kills within {seconds:.1f} s of work; all that was left is whole", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
