"""Run as one of several processes: trains a toy together with the others, and says what it ended up with.

trained_together.py OUT MINUTES [shared|divided]    the last: a step is as large however many they are
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from toy_training import SHARED, SHORT, toy_trainer

from hamburger_edge.models.training.recipe import Stage


def main(out: Path, minutes: float, how: str = "") -> None:
    learns = ("micro", "stop_head", "embedder")  # which nothing reaches: there are no cuts
    plain = Stage("plain", learns, epochs=0.5, learning_rate=1e-3)
    recipe = SHARED if how else replace(SHORT, stages=(plain,), precision="fp32")
    trainer = toy_trainer(out, recipe, conversations=300 if how else 120, divide=how == "divided")
    time.sleep(trainer.processes.index)  # clocks that do not agree
    done = trainer.run(minutes=minutes)
    weights = b"".join(p.detach().numpy().tobytes() for p in trainer.model.parameters())
    print(done, trainer.reached.step, hashlib.sha256(weights).hexdigest(), flush=True)
    trainer.processes.leave()
    os._exit(0)  # threads of the library that connects processes may outlive the interpreter, and abort it


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
