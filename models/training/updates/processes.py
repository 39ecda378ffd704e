"""The processes of `accelerate launch`, which train one model together; or this one alone.

Each has a copy of all weights and computes its share of a step's batches; gradients are averaged. With
`divide` each holds a part of weights, gradients and optimizer, and gathers a layer to compute it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from hamburger_edge.errors import ConfigError, require
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import DecoderLayer

Part = TypeVar("Part")


class Processes:
    def __init__(self, *, divide: bool = False, device: str | None = None):
        """`device` replaces the launched one."""
        accelerate = require("accelerate", "train")
        # a batch may not reach every parameter: without merged slots the embedder is unused
        options = accelerate.DistributedDataParallelKwargs(find_unused_parameters=True)
        self.accelerator = accelerate.Accelerator(device_placement=False, kwargs_handlers=[options])
        kind = str(self.accelerator.distributed_type.value)
        if kind != "NO" and not kind.startswith("MULTI_"):
            raise ConfigError(
                f"launch without {kind}: weights are divided among processes by `train --divide`"
            )
        self.count: int = self.accelerator.num_processes
        self.index: int = self.accelerator.process_index
        self.first: bool = self.accelerator.is_main_process  # the only one that writes
        self.device: torch.device = torch.device(device) if device else self.accelerator.device
        self.divides = divide and self.count > 1

    def any(self, mine: bool) -> bool:
        """Whether it holds in any process: all must decide alike, or they wait for each other's gradients."""
        if mine:
            self.accelerator.set_trigger()
        return bool(self.accelerator.check_trigger())

    def summed(self, counts: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sum tensors of equal names and shapes over all processes."""
        if self.count == 1 or not counts:
            return counts
        total = self.accelerator.reduce(torch.stack(list(counts.values())), "sum")
        return dict(zip(counts, total, strict=True))

    def leave(self) -> None:
        """End the other processes together: one that ends early would interrupt the others' work."""
        if self.count > 1:
            self.accelerator.wait_for_everyone()
            self.accelerator.free_memory()
            self.accelerator.end_training()

    # -- one model, many processes ---------------------------------------------------------------------

    def own(self, model: Hamburger) -> Hamburger:
        """Return the model that this process trains, on its device. With divided weights it is another model,
        and the whole one stays in host memory."""
        return copy.deepcopy(model.cpu()) if self.divides else model.to(self.device)

    def prepare(self, objective: nn.Module) -> nn.Module:
        """Wrap the objective so that gradients are averaged. Divided weights replace the model's
        parameters."""
        self.accelerator.free_memory()  # of the previous stage
        if not self.divides:
            return cast(nn.Module, self.accelerator.prepare(objective.to(self.device)))
        for module in objective.modules():
            if isinstance(module, DecoderLayer):
                fully_shard(module)
        # free the parameters outside the layers after a forward too: judging may use a mean
        fully_shard(objective, reshard_after_forward=True)
        return objective

    def apart(self, objective: nn.Module) -> AbstractContextManager[None]:
        """Add up gradients per process inside the block, without averaging."""
        if isinstance(objective, FSDPModule):
            return _unsynchronised(objective)
        return cast(AbstractContextManager[None], getattr(objective, "no_sync", nullcontext)())

    def whole(self, part: Part, *, everywhere: bool = False) -> Part:
        """Return nested tensors in full on the CPU, in the first process or in all; all must call it."""
        if isinstance(part, DTensor):
            full = part.full_tensor()
            return cast(Part, full.cpu() if self.first or everywhere else torch.empty(0))
        if isinstance(part, Mapping):
            return cast(Part, {k: self.whole(inner, everywhere=everywhere) for k, inner in part.items()})
        if isinstance(part, list):
            return cast(Part, [self.whole(inner, everywhere=everywhere) for inner in part])
        return part


@contextmanager
def _unsynchronised(objective: FSDPModule) -> Iterator[None]:
    objective.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        objective.set_requires_gradient_sync(True)


def like(whole: Tensor, parameter: Tensor) -> Tensor:
    """Divide a tensor like a parameter of its shape, on the same device."""
    if isinstance(parameter, DTensor) and whole.shape == parameter.shape:
        here = whole.to(parameter.device)
        return distribute_tensor(here, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return whole.to(parameter.device)


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load moments that were saved whole."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        number: {
            name: like(value, parameters[number]) if isinstance(value, Tensor) and value.ndim else value
            for name, value in entry.items()
        }
        for number, entry in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": moments})
