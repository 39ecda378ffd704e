"""What trains on a GPU, held to the rules of one: nobody has had a real one yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_distilling_and_training_on_a_gpu_end_where_the_cpu_does(tmp_path: Path) -> None:
    """In a process of its own, which has that GPU from its beginning to its end."""
    script = Path(__file__).with_name("simulated_gpu_run.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.endswith("the same\n"), done.stderr[-3000:]
