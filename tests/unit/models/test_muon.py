"""Updates of many matrices together against torch's Muon, one matrix at a time."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.optim import Muon

from hamburger_edge.models.training.updates.muon import StackedMuon

SHAPES = [(8, 24), (24, 8), (8, 24), (16, 16), (24, 8)]
SETTINGS: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}


@pytest.mark.parametrize("nesterov", [True, False])
def test_together_they_learn_what_each_would_alone(nesterov: bool) -> None:
    drawn = torch.Generator().manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape, generator=drawn)) for shape in SHAPES]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    together = StackedMuon(ours, nesterov=nesterov, **SETTINGS)
    alone = Muon(theirs, nesterov=nesterov, **SETTINGS)
    for step in range(3):
        for own, their in zip(ours, theirs, strict=True):
            own.grad = torch.randn(own.shape, generator=drawn)
            their.grad = own.grad.clone()
        if step == 1:  # a batch does not reach every parameter
            ours[0].grad = theirs[0].grad = None
        together.step()
        alone.step()
        if step == 1:  # a saved run continues with either
            together.load_state_dict(copy.deepcopy(alone.state_dict()))
    for own, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, their, rtol=1e-3, atol=1e-4)
