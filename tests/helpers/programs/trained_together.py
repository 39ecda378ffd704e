"""Train toys as one of several processes, one training after another, and print the result of each.

trained_together.py OUT MINUTES plain|shared|divided ...    all but plain: a step is as large however many
                                                            processes there are
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from hamburger_edge.models.training.training_recipe import Stage
from hamburger_edge.models.training.updates.processes import Processes
from helpers.toys.toy_training import SHARED, SHORT, toy_trainer


def train(out: Path, minutes: float, how: str) -> Processes:
    learns = ("micro", "stop_head", "embedder")  # the embedder gets no gradient: there are no cuts
    plain = Stage("plain", learns, epochs=0.5, learning_rate=1e-3)
    recipe = replace(SHORT, stages=(plain,), precision="fp32") if how == "plain" else SHARED
    conversations = 120 if how == "plain" else 300
    trainer = toy_trainer(out, recipe, conversations=conversations, divide=how == "divided")
    if how == "plain":
        time.sleep(trainer.processes.index)  # clocks that do not agree
    done = trainer.run(minutes=minutes)
    weights = b"".join(p.detach().numpy().tobytes() for p in trainer.model.parameters())
    print(done, trainer.reached.step, hashlib.sha256(weights).hexdigest(), flush=True)
    return trainer.processes


def main(words: list[str]) -> None:
    for out, minutes, how in zip(*(words[place::3] for place in range(3)), strict=True):
        processes = train(Path(out), float(minutes), how)
    processes.leave()
    os._exit(0)  # threads of the library that connects processes may outlive the interpreter, and abort it


if __name__ == "__main__":
    main(sys.argv[1:])
