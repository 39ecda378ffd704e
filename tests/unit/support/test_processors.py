"""Memory that a process gives back."""

from __future__ import annotations

import subprocess
import sys

import pytest

# blocks too small for a mapping of their own; the last one keeps the heap from shrinking
FREED = """
from hamburger_edge.support.processors import give_back_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

blocks = [bytes(1 << 16) for _ in range(2000)]
del blocks[:-1]
kept = resident()
give_back_memory()
print(kept - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take memory back themselves")
def test_freed_memory_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000_000
