"""Run by test_pipeline.py: exports the same toy model in forked children and kills them at random moments.

    python killed_exports.py FOLDER KILLS

Imports and a first export happen once, before the forks, so that the kills fall into the export itself.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from toy_bundles import toy_checkpoint

from hamburger_edge import export_checkpoint as export


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)
    checkpoint = toy_checkpoint(folder / "checkpoint", num_layers=1, micro_layers=1, taps=(0,))
    target = folder / "bundle"
    export(checkpoint, target, precision="fp32", verify=False)
    began = time.monotonic()
    export(checkpoint, target, precision="fp32", verify=False, force=True)
    whole = time.monotonic() - began
    chance = random.Random(kills)
    for number in range(kills):
        # every second time to a name where nothing is yet
        out = target if number % 2 else folder / "new"
        child = os.fork()
        if child == 0:
            export(checkpoint, out, verify=False, force=True, precision=("fp32", "int8")[number // 2 % 2])
            os._exit(0)
        time.sleep(chance.random() * whole * 1.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        check(folder, target)
    export(checkpoint, folder / "new", precision="fp32", verify=False, force=True)
    export(checkpoint, target, precision="fp32", verify=False, force=True)


def check(folder: Path, target: Path) -> None:
    """What opens at all is whole; the target, once there, always opens."""
    from hamburger_edge.bundle.files import check_files
    from hamburger_edge.bundle.reading import load_manifest
    from hamburger_edge.errors import BundleError

    check_files(target, load_manifest(target), hashes=True)
    for path in folder.iterdir():
        if path.is_dir() and path.name != "checkpoint":
            try:
                manifest = load_manifest(path)
            except BundleError:
                assert path.name.startswith("."), f"{path.name} is visible and no bundle"
                continue
            check_files(path, manifest, hashes=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
