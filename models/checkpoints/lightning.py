"""Read the paper authors' Lightning checkpoint (`.ckpt`): base and graft in one state dictionary.

`weights_only=True` loads tensors and plain containers and runs no pickled code. The file lacks the base's
configuration, so a Hugging Face config.json is needed.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor

from hamburger_edge.errors import CheckpointError, ConfigError
from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig
from hamburger_edge.models.bases.formats.renaming import LIGHTNING, LIGHTNING_UNUSED, rename
from hamburger_edge.support.files import check_regular

MERGER_HEADS = 64  # fixed in the reference, for any width
TAPS, LAYERS = (3, 7, 11), 16  # the reference's, for a base of 16 layers


def load_lightning(
    path: Path, base: BaseConfig, eos_ids: tuple[int, ...]
) -> tuple[HamburgerConfig, dict[str, Tensor]]:
    """Return the configuration, and the float32 state by our names."""
    try:
        check_regular(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{path}: truncated, or holds more than tensors, which is never run ({reason}): get it again"
        ) from error
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: has no state_dict: not a Lightning checkpoint")
    ours: dict[str, Tensor] = {}
    for theirs in list(state):
        tensor = state.pop(theirs)
        if theirs.startswith(LIGHTNING_UNUSED):
            continue
        try:
            name = rename(theirs, LIGHTNING)
        except KeyError:
            raise CheckpointError(f"{path}: unknown tensor {theirs}: not the reference's layout") from None
        if name is not None:
            ours[name] = tensor.to(torch.float32, copy=True)  # a copy out of the file's memory map
    if base.tied_head:
        ours.pop("base.lm_head.weight", None)
    return _config(path, ours, base, eos_ids), ours


def _config(
    path: Path,
    state: dict[str, Tensor],
    base: BaseConfig,
    eos_ids: tuple[int, ...],
) -> HamburgerConfig:
    """Read steps and layers off the tensors; the reference fixes the rest."""
    if base.num_layers != LAYERS:
        raise CheckpointError(
            f"{path}: the reference taps layers {TAPS} of {LAYERS}, but this base has {base.num_layers}: "
            "put the config.json of the base that it was trained on beside it"
        )
    if "embedder.places" not in state:
        raise CheckpointError(f"{path}: missing tensor comp_embedder.merger.pos: not the reference's layout")
    micro_layers = {int(name.split(".")[2]) for name in state if name.startswith("micro.layers.")}
    try:
        return HamburgerConfig(
            base=base,
            taps=TAPS,
            eos_ids=eos_ids,
            max_group_tokens=state["embedder.places"].shape[0],
            micro_layers=len(micro_layers),
            merger_heads=MERGER_HEADS,
            micro_final_norm=False,
            position_rule="token",
            merge_residual="mean",
        )
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
