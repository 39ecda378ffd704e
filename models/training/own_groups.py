"""The groups that a model would make of its training text: where its micro decoder chooses the written token.

This is a third way to cut answers, besides entropies and chance. A generating model merges the tokens that
its micro decoder gets right, which are not the ones that are easy for the base.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from hamburger_edge.models.training.data.batches import Batches
from hamburger_edge.models.training.objective import Objective


@torch.no_grad()
def own_lengths(objective: Objective, batches: Batches, device: torch.device) -> npt.NDArray[np.int8]:
    """[tokens] the size of a group that begins there; 1 where nothing was read.

    `batches` has one token per slot, so every token of an answer is a group's first once.
    """
    model = objective.model
    lengths = np.ones(len(batches.data.ids), dtype=np.int8)
    for rows in batches.plan(0):
        batch = batches.build(rows).to(device)
        out = model(batch.groups)
        valid = out.valid[:, 1:]  # [G, m-1] token i+1 exists
        right = objective.right(model.micro_logits(out.micro_hidden[valid]), out.targets, valid)
        lengths[batch.starts] = 1 + right.long().cumprod(1).sum(1).cpu().numpy()
    return lengths
