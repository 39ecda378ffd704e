"""Muon for models of many small matrices: those of one shape are made orthogonal together.

One after another, the updates of a base's low-rank pairs took nearly half of a training step on a GPU, which
waited for thousands of small products to be started.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Muon


class StackedMuon(Muon):
    """`torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`; other settings and the state are its own.

    It multiplies in `dtype`. torch's always takes 16 bits, which many processors emulate.
    """

    def __init__(self, parameters: Any, dtype: torch.dtype = torch.bfloat16, **settings: Any):
        super().__init__(parameters, **settings)
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if closure is not None or any(isinstance(p, DTensor) for g in self.param_groups for p in g["params"]):
            return super().step(closure)  # type: ignore[no-untyped-call]
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in alike.items():
                self._update(group, shape, parameters)
        return None

    def _update(self, group: dict[str, Any], shape: torch.Size, parameters: list[Tensor]) -> None:
        """Update parameters of one shape."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        moments = [self._moment(parameter) for parameter in parameters]
        torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, moments, group["momentum"]) if group["nesterov"] else moments
        changes = orthogonal(
            torch.stack(list(ahead)).to(self.dtype),
            group["ns_coefficients"],
            group["ns_steps"],
            group["eps"],
        )
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        # "match_rms_adamw": entries change by a fifth of the rate
        rate = 0.2 * max(shape) ** 0.5 * group["lr"]
        torch._foreach_add_(parameters, list(changes.to(parameters[0].dtype)), alpha=-rate)

    def _moment(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        moment: Tensor = state["momentum_buffer"]
        return moment


def orthogonal(
    matrices: Tensor, coefficients: tuple[float, float, float], steps: int, epsilon: float
) -> Tensor:
    """Matrices [n, rows, columns] -> the same with singular values near 1 (Newton-Schulz iteration)"""
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / x.flatten(1).norm(dim=1).clamp(min=epsilon)[:, None, None]
    for _ in range(steps):
        squares = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(squares, squares, squares, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x
