"""Select an evenly spaced subset of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hamburger_edge.models.distillation.data_manifest import NAME, read_data_manifest
from hamburger_edge.models.distillation.shard_files import ARRAYS
from hamburger_edge.models.distillation.written import write_shard
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.scoring import some_of


def subset(data: DistilledData, share: float, wanted: int) -> DistilledData:
    """Return about `wanted` examples (0: all), with the same share of each side of the split."""
    if not 0 < wanted < len(data):
        return data
    every, split = -(-len(data) // wanted), data.split(share)
    sides = (split.train, split.calibration, split.held_out)
    return some_of(data, sorted(number for side in sides for number in side[::every]))


def write_subset(folder: Path, data: DistilledData, source: dict[str, Any]) -> DistilledData:
    """Write a subset as a data folder, unless the folder already holds it."""
    if not (folder / NAME).exists() or read_data_manifest(folder).source != source:
        write_shard(folder, folder.name, {name: getattr(data, name) for name in ARRAYS}, source)
    return DistilledData.load(folder)
