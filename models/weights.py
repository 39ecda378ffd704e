"""What a loaded base is, and the checks that every set of weights passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.config import BaseConfig
from hamburger_edge.models.llama import Base


@dataclass
class LoadedBase:
    config: BaseConfig
    state: dict[str, Tensor]  # float32, by the parameter names of `models.llama.Base`
    tokenizer: Path | None  # its tokenizer.json, where one lies beside the weights
    chat_template: dict[str, Any] | None  # the declarative JSON form, where known
    eos_ids: tuple[int, ...]
    name: str
    license: str | None


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def base_shapes(config: BaseConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight of a base, without allocating it."""
    with torch.device("meta"):
        return shapes(Base(config))


def check_state(state: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]], source: object) -> None:
    """Every weight is there, has its shape and is finite; each error names the weights at fault."""
    if missing := expected.keys() - state.keys():
        raise CheckpointError(
            f"{source}: missing {_names(missing)}: the file is incomplete or another model's"
        )
    if unknown := state.keys() - expected.keys():
        raise CheckpointError(f"{source}: unknown {_names(unknown)}: not a model of the declared family")
    for name, tensor in state.items():
        if tuple(tensor.shape) != expected[name]:
            raise CheckpointError(
                f"{source}: tensor {name} has shape {list(tensor.shape)}, "
                f"but the configuration makes it {list(expected[name])}"
            )
        if not torch.isfinite(tensor).all():
            raise CheckpointError(
                f"{source}: tensor {name} holds NaN or infinity: the file is damaged, get it again"
            )


def _names(names: Iterable[str]) -> str:
    """'tensor a' or 'tensors a, b, c and 9 more'"""
    first = sorted(names)
    more = f" and {len(first) - 3} more" if len(first) > 3 else ""
    return f"tensor{'s' if len(first) > 1 else ''} {', '.join(first[:3])}{more}"
