"""What trains on a GPU, held to the rules of one: nobody has had a real one yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from places import PROGRAMS, environment


def test_distilling_and_training_on_a_gpu_end_where_the_cpu_does(tmp_path: Path) -> None:
    """In a process of its own, which has that GPU from its beginning to its end."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "simulated_gpu_run.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment(OMP_NUM_THREADS="1"),
    )
    assert done.stdout.endswith("the same\n"), done.stderr[-3000:]
