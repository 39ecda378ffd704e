"""Run as one of several processes: trains a toy together with the others, and says what it ended up with."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from toy_training import SHORT, toy_trainer

from hamburger_edge.models.training.recipe import Stage


def main(out: Path, minutes: float) -> None:
    learns = ("micro", "stop_head", "embedder")  # which nothing reaches: there are no cuts
    plain = Stage("plain", learns, epochs=0.5, learning_rate=1e-3)
    trainer = toy_trainer(out, replace(SHORT, stages=(plain,), precision="fp32"), conversations=120)
    time.sleep(trainer.accelerator.process_index)  # clocks that do not agree
    done = trainer.run(minutes=minutes)
    weights = b"".join(p.detach().numpy().tobytes() for p in trainer.model.parameters())
    print(done, trainer.reached.step, hashlib.sha256(weights).hexdigest(), flush=True)
    trainer.leave()
    os._exit(0)  # threads of the library that connects processes may outlive the interpreter, and abort it


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
