"""A part of the examples, from all over their file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hamburger_edge.models.distillation.data_manifest import NAME, read_data_manifest
from hamburger_edge.models.distillation.shard_files import ARRAYS
from hamburger_edge.models.distillation.written import write_shard
from hamburger_edge.models.training.data.batches import DistilledData
from hamburger_edge.models.training.data.scoring import some_of


def subset(data: DistilledData, share: float, wanted: int) -> DistilledData:
    """About so many examples, 0: all; of what is held out and kept for calibration as large a share."""
    if not 0 < wanted < len(data):
        return data
    every, split = -(-len(data) // wanted), data.split(share)
    sides = (split.train, split.calibration, split.held_out)
    return some_of(data, sorted(number for side in sides for number in side[::every]))


def write_subset(folder: Path, data: DistilledData, source: dict[str, Any]) -> DistilledData:
    """As a data folder of its own, unless it is there."""
    if not (folder / NAME).exists() or read_data_manifest(folder).source != source:
        write_shard(folder, folder.name, {name: getattr(data, name) for name in ARRAYS}, source)
    return DistilledData.load(folder)
