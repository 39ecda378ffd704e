"""A loaded base, and reading and checking weights of any file format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hamburger_edge.errors import CheckpointError, require
from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.llama import Base
from hamburger_edge.models.bases.chat_template import JinjaTemplate
from hamburger_edge.support.files import check_regular, read_regular

Shapes = Mapping[str, tuple[int, ...]]


@dataclass
class LoadedBase:
    config: BaseConfig
    state: dict[str, Tensor]  # by the parameter names of `architecture.llama.Base`; types as `floating` says
    tokenizer: Path | None  # its tokenizer.json, if there is one beside the weights
    chat_template: dict[str, Any] | None  # the declarative JSON form; none if there is no template
    eos_ids: tuple[int, ...]
    name: str
    license: str | None
    jinja: JinjaTemplate | None = None  # the original template

    @property
    def sha256(self) -> str:
        """Hash all weights by name: identifies a base, wherever its files are."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state.items()):
            digest.update(f"{name} {list(tensor.shape)}".encode())
            digest.update(tensor.float().contiguous().numpy().data)
        return digest.hexdigest()


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def base_shapes(config: BaseConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight of a base, without allocating it."""
    with torch.device("meta"):
        return shapes(Base(config))


def read_safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) one at a time, each a copy in its stored type."""
    safetensors = require("safetensors", "export")
    try:
        check_regular(path)
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a dictionary)
                yield name, file.get_tensor(name).clone()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file: the folder is incomplete, get it again") from error
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"{path}: truncated or not a safetensors file ({error}): get it again"
        ) from error


def floating(name: str, tensor: Tensor, *, half: bool) -> Tensor:
    """Convert to float32. With `half`, layers' matrices stored in 16 bits stay so, and `Projection` widens
    them."""
    narrow = half and name.endswith("_proj.weight") and tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor if narrow else tensor.float()


def check_state(state: Mapping[str, Tensor], expected: Shapes, source: object) -> None:
    """Check that every weight exists, has its shape and is finite; errors name the wrong weights."""
    if missing := expected.keys() - state.keys():
        raise CheckpointError(f"{source}: missing {_names(missing)}: incomplete, or another model")
    if unknown := state.keys() - expected.keys():
        raise CheckpointError(
            f"{source}: unknown {_names(unknown)}: not the model its configuration describes"
        )
    for name, tensor in state.items():
        if tuple(tensor.shape) != expected[name]:
            raise CheckpointError(
                f"{source}: tensor {name} has shape {list(tensor.shape)}, "
                f"but the configuration makes it {list(expected[name])}"
            )
        # without copies: an embedding may be most of the model
        if tensor.numel() and not all(torch.isfinite(end) for end in torch.aminmax(tensor)):
            raise CheckpointError(f"{source}: tensor {name} holds NaN or infinity: damaged, get it again")


def check_tokenizer(path: Path, vocab_size: int) -> None:
    """Check that every id of the tokenizer has a row in the embedding."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(read_regular(path))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: not a tokenizer file ({error}): get it again") from error
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= vocab_size:
        raise CheckpointError(
            f"{path}: has token id {largest}, but the model's embedding ends at {vocab_size - 1}: "
            "use the tokenizer that belongs to this model"
        )


def _names(names: Iterable[str]) -> str:
    """'tensor a' or 'tensors a, b, c and 9 more'"""
    first = sorted(names)
    more = f" and {len(first) - 3} more" if len(first) > 3 else ""
    return f"tensor{'s' if len(first) > 1 else ''} {', '.join(first[:3])}{more}"
