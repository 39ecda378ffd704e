"""Distils and trains on the CPU and on the simulated GPU, and compares. Prints "the same"."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import simulated_gpu  # before what it changes is used
import torch

from hamburger_edge.models.distillation.distill import distill
from hamburger_edge.models.training.data.batches import ARRAYS, Cuts, DistilledData
from hamburger_edge.models.training.objective import LossWeights
from hamburger_edge.models.training.runs import merged
from hamburger_edge.models.training.trainer import Trainer
from helpers.toys.toy_distillation import PROMPTS, SETTINGS, TURNS
from helpers.toys.toy_distillation import toy_base as talking_base
from helpers.toys.toy_training import LORA, SHORT, ladders, toy_base, toy_model


def distilled(folder: Path, device: torch.device) -> DistilledData:
    base = talking_base().to(device)
    distill(base, folder, SETTINGS, TURNS, PROMPTS, {"base": "toy"}, dtype=torch.float32)
    return DistilledData.load(folder)


def trained(folder: Path, device: torch.device) -> list[float]:
    """Two stages, the second merging in every way that there is, with every loss; calibrated and merged.
    Returns what was measured on held-out questions, and the calibration."""
    cuts = Cuts(entropy=0.3, random=0.3, agreement=0.3)
    both = replace(LORA, cuts=cuts, loss=LossWeights(features=1.0, features_every=2, first_every=2))
    stages = (replace(LORA, name="plain", learns=("micro", "stop_head"), average=1.0), both)
    recipe = replace(SHORT, stages=stages, optimizer="muon", judge_every=5, out=str(folder))
    data = ladders(200)
    first, trainer = (
        Trainer(recipe, toy_model(recipe), data, lambda line: None, device=str(device)) for _ in range(2)
    )
    assert not first.run(minutes=0)  # one step, and saved
    assert trainer.run()  # on from there
    calibration = trainer.calibrate()
    model, delta = merged(recipe, toy_base(), data, trainer.model)
    assert delta
    assert all(tensor.device.type == "cpu" for tensor in [*delta.values(), *model.state_dict().values()])
    looks = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    judged = [look for look in looks if look["kind"] != "train"]  # those depend on the time that a step takes
    measured = [v for look in judged for v in look.values() if isinstance(v, float)]
    return [*measured, calibration.scale, calibration.offset]


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    cpu, gpu = torch.device("cpu"), simulated_gpu.simulate()
    here, there = (distilled(folder / f"data-{d.type}", d) for d in (cpu, gpu))
    for name in ARRAYS:
        assert np.allclose(getattr(here, name), getattr(there, name), rtol=0.01, atol=0.01), name
    on_cpu, on_gpu = (trained(folder / f"run-{d.type}", d) for d in (cpu, gpu))
    assert len(on_cpu) > 50
    # rounded otherwise at every step, and steps of a fixed size make the most of that
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0.05, atol=0.05)
    print("the same")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
