"""Processes that train together, each on batches of its own, as `accelerate launch` starts them.

What one of them decides, all must: otherwise the others wait for its gradients for ever.
"""

from __future__ import annotations

import os

import torch
from torch import nn

from hamburger_edge.errors import require


class Processes:
    def __init__(self) -> None:
        self.count, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))

    @property
    def first(self) -> bool:
        """Writes the files and speaks."""
        return self.rank == 0

    def joined(self, step: nn.Module) -> nn.Module:
        """The same, averaging gradients over all processes. A batch need not reach every parameter: without
        merged slots, the embedder is never asked."""
        if self.count == 1:
            return step
        accelerate = require("accelerate", "train")
        options = accelerate.DistributedDataParallelKwargs(find_unused_parameters=True)
        joined: nn.Module = accelerate.Accelerator(kwargs_handlers=[options]).prepare(step)
        return joined

    def any(self, mine: bool, device: torch.device) -> bool:
        """Whether it is so in any process."""
        if self.count == 1:
            return mine
        flag = torch.tensor(float(mine), device=device)
        torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
        return bool(flag)
