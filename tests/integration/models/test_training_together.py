"""Two processes that train together: one program to the outside."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from places import PROGRAMS, environment

SCRIPT = PROGRAMS / "trained_together.py"
PATIENCE = 240  # seconds until the test gives up: never part of what is tested


def together(out: Path, minutes: str) -> list[str]:
    """What both say in the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(out), minutes],
            env=environment(**common, ACCELERATE_USE_CPU="true", RANK=rank, LOCAL_RANK=rank),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    said = [process.communicate(timeout=PATIENCE) for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(text[1][-2000:] for text in said)
    assert said[0][0] == said[1][0]
    return said[0][0].split()


def test_processes_train_as_one_and_stop_together(tmp_path: Path) -> None:
    """One starts a second after the other, and time is up at once; run again, both go on to the end."""
    done, steps, first = together(tmp_path, "0")
    assert (done, steps) == ("False", "1")
    done, _, last = together(tmp_path, "100")
    assert done == "True"
    assert last != first
    assert {path.name for path in tmp_path.iterdir()} == {"last.pt", "metrics.jsonl"}
