"""A shard's file: flat arrays over all its tokens, read whole and checked by its hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.distillation.data_manifest import Shard
from hamburger_edge.models.distillation.storage import Folder, folder_at

ARRAYS = ("starts", "ids", "roles", "entropies", "top_ids", "top_log_probabilities")
Arrays = dict[str, npt.NDArray[Any]]


def read_shard(where: str | Path | Folder, shard: Shard) -> Arrays:
    """Read its conversations without those that repeat an earlier shard's questions."""
    folder = folder_at(where)
    path = f"{folder}/{shard.file}"
    try:
        if (data := folder.checked(shard.file, shard.sha256)) is None:
            raise ConfigError(f"{path}: missing, or changed since it was made: run distill again")
        arrays: Arrays = load(data)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: missing or damaged ({error}): run distill again") from error
    if lacking := sorted(set(ARRAYS) - set(arrays)):
        raise ConfigError(f"{path}: has no {lacking[0]}: run distill again")
    if not len(arrays["starts"]):
        raise ConfigError(f"{path}: is empty: run distill again")
    return without(arrays, shard.repeated) if shard.repeated else arrays


def without(arrays: Arrays, conversations: tuple[int, ...]) -> Arrays:
    """Return all other conversations."""
    starts = arrays["starts"]
    lengths = np.diff(starts)
    keep = np.ones(len(lengths), dtype=bool)
    keep[[number for number in conversations if number < len(keep)]] = False
    tokens = np.zeros(len(arrays["ids"]), dtype=bool)
    tokens[: starts[-1]] = np.repeat(keep, lengths)
    kept = {name: array[tokens] for name, array in arrays.items() if name != "starts"}
    return {**kept, "starts": np.concatenate([[0], np.cumsum(lengths[keep])]).astype(starts.dtype)}
